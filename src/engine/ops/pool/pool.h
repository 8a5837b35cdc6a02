// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"
#include "engine/ops/pointwise/expression_attributes.h"

namespace ren {

// Windowed pooling. max_pool: x -> y, index (u8: position in the window, row-major kernel_h*kernel_w
// <= 255, else i32; kNoTensor in inference). The first maximum wins; a NaN wins over any number, as in
// PyTorch. max_pool_backward: dy, index, x (shape only) -> dx. average_pool: x -> y;
// average_pool_backward: dy, x (shape only) -> dx. Windows that would begin beyond the input (ceil
// mode) don't exist; with count_include_pad the divisor counts explicit padding, never the overhang
// of ceil mode (PyTorch's rule). Global pooling is `reduce`.
// A max_pool that computes, on GPUs only, pools the one value of an expression over its inputs, which is
// never stored: one of them has the value's shape and type, the others repeat over samples and pixels.
struct PoolAttributes final : ExpressionAttributes {
  PoolAttributes() : ExpressionAttributes({}) {}
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool ceil_mode = false, count_include_pad = false;
  bool computes() const { return !expression.outputs.empty(); }
  std::string text() const override;
};
// Output extent of one axis by PyTorch's rule.
int64_t pooled_extent(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                      int64_t after, bool ceil_mode);

}  // namespace ren
