// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"
#include "engine/ops/pointwise/expression_attributes.h"

namespace ren {

// y_k[n,h,w,c] = expression_k(x_0, x_1, ...), every operand broadcast to `shape`'s extents
// (a dimension of 1 repeats) or viewed as `views` says. Inputs: the expression's operands in order; then,
// when it draws random numbers, Scalar::random_state. Outputs all have the broadcast shape of the
// operands; one that the expression doesn't read is there for its shape (the gradient of a reduction
// needs that).
struct PointwiseAttributes final : ExpressionAttributes {
  explicit PointwiseAttributes(Expression e, std::vector<DType> output_types = {})
      : ExpressionAttributes(std::move(e)), types(std::move(output_types)) {}
  std::vector<DType> types;    // of the outputs; empty: all f32
  bool training_only = false;  // dropout and its kin: in inference the output is operand 0 as it is
  std::string text() const override { return view_text() + expression.text(); }
};

// The broadcast of all operand shapes; throws when two dimensions differ and neither is 1.
Shape broadcast_shape(const Graph& graph, std::span<const TensorId> operands);

}  // namespace ren
