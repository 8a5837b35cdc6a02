// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/expression_nodes.h"

#include <algorithm>

namespace ren {
namespace {

template <typename Ids>
bool contains(const Ids& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

bool is_heavy(Prim prim) {
  switch (prim) {
    case Prim::exp:
    case Prim::log:
    case Prim::tanh:
    case Prim::erf:
    case Prim::sigmoid:
    case Prim::softplus:
    case Prim::uniform:
      return true;
    default:
      return false;
  }
}

std::vector<TensorId> joint_operands(const Node& first, const Node& second) {
  std::vector<TensorId> operands;
  for (const TensorId id : operands_of(first))
    if (!contains(operands, id)) operands.push_back(id);
  for (const TensorId id : operands_of(second))
    if (!contains(operands, id) && !contains(first.outputs, id)) operands.push_back(id);
  return operands;
}

bool reads_one_of(const Graph& graph, const Node& node, const std::vector<TensorId>& storages) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](TensorId id) { return id != kNoTensor && contains(storages, graph.storage(id)); });
}

bool share_a_tensor(const Graph& graph, const Node& a, const Node& b, const Shape& full) {
  const auto reads = operands_of(b);
  return std::any_of(reads.begin(), reads.end(), [&](TensorId id) {
    return is_16bit(graph.at(id).dtype) && graph.at(id).shape == full &&
           (contains(a.inputs, id) || contains(a.outputs, id));
  });
}

JointExpression join_expressions(const Node& first, const Node& second) {
  JointExpression joint{joint_operands(first, second), {}, {}, {}};
  const auto value = [&](TensorId id) {
    const auto computed = std::find(first.outputs.begin(), first.outputs.end(), id);
    if (!joint.first.empty() && computed != first.outputs.end())
      return joint.first[size_t(computed - first.outputs.begin())];
    const auto at = std::find(joint.operands.begin(), joint.operands.end(), id);
    return joint.builder.input(int(at - joint.operands.begin()));
  };
  const auto results = [&](const Node& node) {
    std::vector<Value> arguments;
    for (const TensorId id : operands_of(node)) arguments.push_back(value(id));
    return joint.builder.inline_expression(expression_of(node), arguments);
  };
  joint.first = results(first);
  joint.second = results(second);
  return joint;
}

}  // namespace ren
