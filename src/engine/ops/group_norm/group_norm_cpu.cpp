// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/support/moments_cpu.h"
#include "engine/ops/support/rows_cpu.h"

namespace ren {
namespace {

constexpr int64_t kTile = 64;  // channels that one thread takes of a sample

NodeChoice prepare(const PrepareContext& context) {
  const Shape& x = context.graph.at(context.node.inputs[0]).shape;
  return own_engine(uint64_t(x.n * x.c) * sizeof(Moments));
}

// First the moments of each channel of each sample, then those of the groups.
std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Tensor& x = input_tensor(context, 0);
  const Shape s = x.shape;
  const DType type = x.dtype;
  const auto a = context.node.as<GroupNormAttributes>();
  const int64_t tiles = (s.c + kTile - 1) / kTile, per_group = s.c / a.groups;
  const auto element = int64_t(size_of(type));
  const std::byte* source = context.inputs[0];
  float *mean = output_as<float>(context, 0), *inverse = output_as<float>(context, 1);
  auto* moments = reinterpret_cast<Moments*>(context.workspace);
  return make_kernel([=] {
    std::fill_n(moments, s.n * s.c, Moments{});
    parallel_for(s.n * tiles, 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / tiles, c = i % tiles * kTile;
        accumulate_columns(source + (n * s.h * s.w * s.c + c) * element, type, 0, s.h * s.w, s.c,
                           std::min(kTile, s.c - c), moments + n * s.c + c);
      }
    });
    for (int64_t first = 0; first < s.n * s.c; first += per_group) {
      Moments all;
      for (int64_t c = 0; c < per_group; ++c) all.merge(moments[first + c]);
      const double factor = 1 / std::sqrt(all.variance() + double(a.epsilon));
      if (mean) std::fill_n(mean + first, per_group, float(all.mean));
      if (inverse) std::fill_n(inverse + first, per_group, float(factor));
    }
  });
}

// A row of floats for 16-bit values.
NodeChoice prepare_sum(const PrepareContext& context) {
  return own_engine(uint64_t(context.graph.at(context.node.inputs[0]).shape.c) * sizeof(float));
}

std::unique_ptr<Kernel> bind_sum(const BindContext& context) {
  const Shape s = input_tensor(context, 0).shape;
  const DType x_type = input_tensor(context, 0).dtype, y_type = output_tensor(context, 0).dtype;
  const int64_t per_group = s.c / context.node.as<GroupNormAttributes>().groups;
  const std::byte* x = context.inputs[0];
  std::byte* y = context.outputs[0];
  auto* buffer = reinterpret_cast<float*>(context.workspace);
  return make_kernel([=] {
    for (int64_t n = 0; n < s.n; ++n) {
      const float* row = load_row(x, x_type, n, s.c, buffer);
      float* sums = begin_row(y, y_type, n, s.c, buffer);
      for (int64_t first = 0; first < s.c; first += per_group) {
        double sum = 0;
        for (int64_t c = 0; c < per_group; ++c) sum += double(row[first + c]);
        std::fill_n(sums + first, per_group, float(sum));
      }
      finish_row(sums, y, y_type, n, s.c);
    }
  });
}

}  // namespace

const OpBackend& group_norm_statistics_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& group_sum_cpu() {
  static const OpBackend backend{prepare_sum, bind_sum};
  return backend;
}

}  // namespace ren
