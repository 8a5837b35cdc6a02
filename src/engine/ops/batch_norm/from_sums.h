// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/ops/op.h"
#include "engine/pointwise/expression.h"

namespace ren {

// batch_norm_from_sums: what batch_norm_statistics makes of the sums of one layer's values and of their
// squares, for many layers at once. Inputs, of each layer one after the other: the sums, the sums of squares,
// running mean, running variance (both B, updated in place; may be absent), shift (may be absent), all
// [1,1,1,C] in FP32 -> mean, inverse_std of each layer; those that nobody wants are kNoTensor.
struct BatchNormFromSumsAttributes final : Attributes {
  struct Layer {
    int64_t rows = 0;  // values of a channel
    float epsilon, keep;
  };
  std::vector<Layer> layers;
  std::string text() const override;
};

// A layer's inputs and outputs: input k of layer i is number i * kCount + k.
struct LayerInput {
  enum : size_t { kSums, kSquares, kMean, kVariance, kShift, kCount };
};
struct LayerOutput {
  enum : size_t { kMean, kInverse, kCount };
};

// The same mean and inverse standard deviation as an expression over two operands, the sums and the sums of
// squares. Each thread of a kernel evaluates it for its channels, so it has no division and no exact root:
// these take as long as the launch that it replaces. Mean and inverse differ from those of
// batch_norm_statistics by a few 2^-24 of themselves, where the values normalised are known to 2^-11 or 2^-8.
Expression statistics_expression(int64_t rows, float epsilon);

}  // namespace ren
