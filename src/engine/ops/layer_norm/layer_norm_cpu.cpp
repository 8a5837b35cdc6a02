// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/support/moments_cpu.h"
#include "engine/ops/support/rows_cpu.h"

namespace ren {
namespace {

// A row of floats a thread.
NodeChoice prepare(const PrepareContext& context) {
  const Shape& x = context.graph.at(context.node.inputs[0]).shape;
  return own_engine(uint64_t(parallel_parts(x.pixels(), row_grain(x.c))) * uint64_t(x.c) * sizeof(float));
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Tensor& x = input_tensor(context, 0);
  const DType type = x.dtype;
  const int64_t rows = x.shape.pixels(), channels = x.shape.c;
  const double epsilon = context.node.as<LayerNormAttributes>().epsilon;
  const std::byte* source = context.inputs[0];
  float *mean = output_as<float>(context, 0), *inverse = output_as<float>(context, 1);
  auto* buffers = reinterpret_cast<float*>(context.workspace);
  return make_kernel([=] {
    parallel_for(rows, row_grain(channels), [&](int part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Moments m =
            moments_of_row(load_row(source, type, i, channels, buffers + part * channels), channels);
        if (mean) mean[i] = float(m.mean);
        if (inverse) inverse[i] = float(1 / std::sqrt(m.variance() + epsilon));
      }
    });
  });
}

}  // namespace

const OpBackend& layer_norm_statistics_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
