// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// 2-D convolution, NHWC images and KRSC weights.
// conv:                  x [N,H,W,C], w [K,R,S,C/groups], bias [1,1,1,K] or absent -> y [N,P,Q,K]
//                        with `sums` two more outputs [1,1,1,K] in FP32
// conv_backward_data:    dy, w, x (for its shape only; absent: the smallest that gives dy's) -> dx
// conv_backward_weights: x, dy, w (for its shape only)                             -> dw (FP32)
// The last `padding_channels` of x are multiplied by nothing: they are there for alignment.
// The gradient of the bias is a `reduce` of dy.
struct ConvAttributes final : Attributes {
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;
  int64_t padding_channels = 0;  // of x, beyond those that w has; one group only
  bool sums = false;  // conv alone, on GPUs: also gives the sum and the sum of squares of y over [N,P,Q]
  std::string text() const override;
};

}  // namespace ren
