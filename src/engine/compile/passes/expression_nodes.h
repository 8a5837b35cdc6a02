// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {

// Pointwise nodes and reductions compute expressions.
inline bool takes_expression(const Node& node) { return node.op == Op::pointwise || node.op == Op::reduce; }

inline const Expression& expression_of(const Node& node) {
  return node.op == Op::pointwise ? node.as<PointwiseAttributes>().expression
                                  : node.as<ReduceAttributes>().expression;
}

// The operands of the expression, without the random state behind them.
inline std::span<const TensorId> operands_of(const Node& node) {
  return std::span(node.inputs).first(size_t(expression_of(node).inputs));
}

}  // namespace ren
