// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/threads.h"
#include "engine/ops/op.h"
#include "engine/ops/pointwise/block_space.h"

namespace ren {

// What the CPU kernels of pointwise and reduce have in common: the space of their operands and
// one evaluator for each part of the work. The number of parts is fixed when the node is
// prepared, so a result does not depend on how many threads happen to run it.

inline std::vector<Shape> operand_shapes(const Graph& graph, const Node& node, const Expression& expression) {
  std::vector<Shape> shapes;
  for (int i = 0; i < expression.inputs; ++i) shapes.push_back(graph.at(node.inputs[size_t(i)]).shape);
  return shapes;
}

inline bool reads_input(const Expression& expression, int input) {
  return std::any_of(expression.nodes.begin(), expression.nodes.end(),
                     [&](const ExprNode& n) { return n.prim == Prim::input && n.index == input; });
}

inline std::vector<BlockOperand> block_operands(const BindContext& context, const Expression& expression) {
  std::vector<BlockOperand> operands;
  for (int i = 0; i < expression.inputs; ++i) {
    const TensorId id = context.node.inputs[size_t(i)];
    operands.push_back(
        {reads_input(expression, i) ? context.inputs[size_t(i)] : nullptr, context.graph.at(id).dtype});
  }
  return operands;
}

inline const int32_t* random_state(const BindContext& context, const Expression& expression) {
  if (!expression.uses_random()) return nullptr;
  return reinterpret_cast<const int32_t*>(context.inputs[size_t(expression.inputs)]);
}

// Blocks that are worth a thread: about ten microseconds at memory speed.
constexpr int64_t kBlocksPerPart = 32;

}  // namespace ren
