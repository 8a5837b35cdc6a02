// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// y = (x - mean) / sqrt(var + epsilon) * scale + bias over [N,H,W] for each channel.
// batch_norm (composite, lowered before kernels are bound): x, scale, bias, running mean, running
// variance, all but x [1,1,1,C] (scale and bias may be absent) -> y, mean, inverse_std ([1,1,1,C]
// FP32, unwanted in inference). While training it normalises by the batch's mean and biased
// variance and moves the running statistics: r = keep * r + (1 - keep) * batch, the variance
// unbiased, n / (n - 1), as PyTorch does; unlike there, a batch whose mean or variance isn't finite (an
// overflow in 16 bits, whose step is skipped) moves nothing. One value a channel is refused at setup.
// A further input `shift` [1,1,1,C] stands for a bias of x that was left out because it cancels: it is
// added to the mean that moves the running one, and its gradient is zero.
// batch_norm_statistics: x, running mean, running variance (both B, updated in place; may be absent), shift,
// and, when the convolution made them, the sums of x and of its squares, each [1,1,1,C]; x itself isn't read
// then
// -> mean, inverse_std. Its attributes are the same struct.
enum StatisticsInput : size_t { kStatisticsOf, kRunningMean, kRunningVariance, kMeanShift, kSums, kSquares };
struct BatchNormAttributes final : Attributes {
  float epsilon = 1e-5f;
  float keep = 0.9f;     // ONNX momentum = 1 - PyTorch's
  bool training = true;  // false: normalises by the running statistics (a frozen BN)
  std::string text() const override;
};

}  // namespace ren
