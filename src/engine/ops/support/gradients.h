// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ops/op.h"
#include "engine/pointwise/expression.h"

namespace ren {

// What the gradients of several ops emit.

inline bool is_wanted(const GradientContext& context, size_t input) {
  const std::vector<TensorId>& inputs = context.node().inputs;
  return input < inputs.size() && inputs[input] != kNoTensor && context.wants(input);
}

// A parameter or a view of one: its gradient is kept in FP32.
bool is_parameter(const Graph& graph, TensorId id);

// Outputs of an elementwise expression; `types` as in PointwiseAttributes.
std::vector<TensorId> emit_pointwise(GradientContext& context, std::string name, Expression expression,
                                     std::vector<TensorId> operands, std::vector<DType> types);

// Which dimensions a sum keeps.
struct Kept {
  bool n, h, w, c;
};
constexpr Kept kChannels{false, false, false, true};       // [1,1,1,C]
constexpr Kept kSampleChannels{true, false, false, true};  // [N,1,1,C]
constexpr Kept kRows{true, true, true, false};             // [N,H,W,1]

std::vector<TensorId> emit_sum(GradientContext& context, std::string name, Expression expression,
                               std::vector<TensorId> operands, Kept kept);

// The gradient of a bias: dy summed to [1,1,1,C].
TensorId emit_bias_gradient(GradientContext& context, TensorId dy);

}  // namespace ren
