// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// 2-D convolution, NHWC images and KRSC weights.
// conv:                  x [N,H,W,C], w [K,R,S,C/groups], bias [1,1,1,K] or absent -> y [N,P,Q,K]
// conv_backward_data:    dy, w, x (for its shape only)                             -> dx
// conv_backward_weights: x, dy, w (for its shape only)                             -> dw (FP32)
// The gradient of the bias is a `reduce` of dy.
struct ConvAttributes final : Attributes {
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;
  std::string text() const override;
};

}  // namespace ren
