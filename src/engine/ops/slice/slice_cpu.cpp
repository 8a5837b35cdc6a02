// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/slice/slice.h"
#include "engine/ops/support/copy_cpu.h"

namespace ren {
namespace {

// The pieces of each block that a slice takes: one when the step is 1.
struct Pieces {
  AxisBlocks x, y;
  int64_t begin, bytes, count, x_stride, y_stride;
};

Pieces pieces_of(const SliceAttributes& a, const Shape& x, const Shape& y, DType type) {
  const AxisBlocks xb = axis_blocks(x, a.axis, type), yb = axis_blocks(y, a.axis, type);
  const int64_t begin = a.begin * xb.inner;
  if (a.step == 1) return {xb, yb, begin, yb.bytes(), 1, 0, 0};
  return {xb, yb, begin, xb.inner, a.count, a.step * xb.inner, xb.inner};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Tensor &x = input_tensor(context, 0), &y = output_tensor(context, 0);
  const Pieces p = pieces_of(context.node.as<SliceAttributes>(), x.shape, y.shape, x.dtype);
  const std::byte* source = context.inputs[0];
  std::byte* target = context.outputs[0];
  return make_kernel([=] {
    parallel_for(p.x.outer, block_grain(p.y.bytes()), [&](int, int64_t begin, int64_t end) {
      if (p.count == 1) {
        copy_pieces(target + begin * p.y.bytes(), p.y.bytes(), source + begin * p.x.bytes() + p.begin,
                    p.x.bytes(), p.bytes, end - begin);
        return;
      }
      for (int64_t o = begin; o < end; ++o)
        copy_pieces(target + o * p.y.bytes(), p.y_stride, source + o * p.x.bytes() + p.begin, p.x_stride,
                    p.bytes, p.count);
    });
  });
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  const Tensor &dy = input_tensor(context, 0), &dx = output_tensor(context, 0);
  const Pieces p = pieces_of(context.node.as<SliceAttributes>(), dx.shape, dy.shape, dy.dtype);
  const std::byte* source = context.inputs[0];
  std::byte* target = context.outputs[0];
  return make_kernel([=] {
    parallel_for(p.x.outer, block_grain(p.x.bytes()), [&](int, int64_t begin, int64_t end) {
      std::memset(target + begin * p.x.bytes(), 0, size_t((end - begin) * p.x.bytes()));
      for (int64_t o = begin; o < end; ++o)
        copy_pieces(target + o * p.x.bytes() + p.begin, p.x_stride, source + o * p.y.bytes(), p.y_stride,
                    p.bytes, p.count);
    });
  });
}

}  // namespace

const OpBackend& slice_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

const OpBackend& slice_backward_cpu() {
  static const OpBackend backend{prepare_own, bind_backward};
  return backend;
}

}  // namespace ren
