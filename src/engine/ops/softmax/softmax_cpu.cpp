// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/softmax/softmax.h"

#include <cmath>

#include "engine/ops/support/rows_cpu.h"
#include "engine/pointwise/vector_math.h"

namespace ren {
namespace {

// Three rows of floats a thread.
NodeChoice prepare(const PrepareContext& context) {
  const Shape& shape = context.graph.at(context.node.outputs[0]).shape;
  const int parts = parallel_parts(shape.pixels(), row_grain(shape.c));
  return own_engine(uint64_t(parts) * uint64_t(shape.c) * 3 * sizeof(float));
}

REN_CLONES void scale(float* y, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] *= factor;
}

REN_CLONES void subtract(const float* x, float shift, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] - shift;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Tensor& x = input_tensor(context, 0);
  const DType x_type = x.dtype, y_type = output_tensor(context, 0).dtype;
  const int64_t rows = x.shape.pixels(), channels = x.shape.c;
  const bool log = context.node.as<SoftmaxAttributes>().log;
  const std::byte* source = context.inputs[0];
  std::byte* target = context.outputs[0];
  auto* buffers = reinterpret_cast<float*>(context.workspace);
  return make_kernel([=] {
    parallel_for(rows, row_grain(channels), [&](int part, int64_t begin, int64_t end) {
      float* buffer = buffers + part * 3 * channels;
      for (int64_t i = begin; i < end; ++i) {
        const float* z = load_row(source, x_type, i, channels, buffer);
        float* y = begin_row(target, y_type, i, channels, buffer + channels);
        const float largest = largest_of(z, channels);
        const double sum = exponentials(z, largest, channels, log ? buffer + 2 * channels : y);
        if (log) {
          // In two steps: the maximum and the logarithm may differ widely in magnitude.
          subtract(z, largest, y, channels);
          subtract(y, float(std::log(sum)), y, channels);
        } else {
          scale(y, float(1 / sum), channels);
        }
        finish_row(y, target, y_type, i, channels);
      }
    });
  });
}

// softmax: dx = y * (dy - sum(dy * y)); log-softmax: dx = dy - exp(y) * sum(dy)
void gradient_row(bool log, const float* dy, const float* y, int64_t channels, float* dx) {
  double sum = 0;
  for (int64_t c = 0; c < channels; ++c) sum += log ? double(dy[c]) : double(dy[c]) * double(y[c]);
  const auto total = float(sum);
  if (!log) {
    for (int64_t c = 0; c < channels; ++c) dx[c] = y[c] * (dy[c] - total);
    return;
  }
  for (int64_t c = 0; c < channels; ++c) dx[c] = dy[c] - std::exp(y[c]) * total;
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  const Tensor& dx = output_tensor(context, 0);
  const DType dy_type = input_tensor(context, 0).dtype, y_type = input_tensor(context, 1).dtype,
              dx_type = dx.dtype;
  const int64_t rows = dx.shape.pixels(), channels = dx.shape.c;
  const bool log = context.node.as<SoftmaxAttributes>().log;
  const std::byte *dy = context.inputs[0], *y = context.inputs[1];
  std::byte* target = context.outputs[0];
  auto* buffers = reinterpret_cast<float*>(context.workspace);
  return make_kernel([=] {
    parallel_for(rows, row_grain(channels), [&](int part, int64_t begin, int64_t end) {
      float* buffer = buffers + part * 3 * channels;
      for (int64_t i = begin; i < end; ++i) {
        const float* g = load_row(dy, dy_type, i, channels, buffer);
        const float* v = load_row(y, y_type, i, channels, buffer + channels);
        float* out = begin_row(target, dx_type, i, channels, buffer + 2 * channels);
        gradient_row(log, g, v, channels, out);
        finish_row(out, target, dx_type, i, channels);
      }
    });
  });
}

}  // namespace

const OpBackend& softmax_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& softmax_backward_cpu() {
  static const OpBackend backend{prepare, bind_backward};
  return backend;
}

}  // namespace ren
