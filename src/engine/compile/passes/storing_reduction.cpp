// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/storing_reduction.h"

#include <algorithm>
#include <span>

#include "engine/compile/passes/expression_nodes.h"

namespace ren {
namespace {

constexpr size_t kMostOperands = 12;

std::vector<TensorId> joint_operands(const Node& pointwise, const Node& reduce) {
  std::vector<TensorId> operands;
  const auto add = [&](std::span<const TensorId> ids, TensorId without) {
    for (const TensorId id : ids)
      if (id != without && std::find(operands.begin(), operands.end(), id) == operands.end())
        operands.push_back(id);
  };
  add(operands_of(pointwise), kNoTensor);
  add(operands_of(reduce), pointwise.outputs[0]);
  return operands;
}

}  // namespace

bool can_store(const Graph& graph, const Node& pointwise, const Node& reduce) {
  if (pointwise.op != Op::pointwise || reduce.op != Op::reduce || pointwise.outputs.size() != 1) return false;
  const auto& p = pointwise.as<PointwiseAttributes>();
  const auto& r = reduce.as<ReduceAttributes>();
  if (p.expression.uses_random() || r.expression.uses_random() || r.kind != ReduceKind::sum) return false;
  if (r.n || r.h || r.w || !r.c || !is_16bit(graph.at(pointwise.outputs[0]).dtype)) return false;
  if (joint_operands(pointwise, reduce).size() > kMostOperands) return false;
  return graph.at(pointwise.outputs[0]).shape == broadcast_shape(graph, operands_of(reduce));
}

Node storing_reduction(const Graph& graph, const Node& pointwise, const Node& reduce, TensorId stored) {
  const auto& p = pointwise.as<PointwiseAttributes>();
  const auto& r = reduce.as<ReduceAttributes>();
  const std::vector<TensorId> operands = joint_operands(pointwise, reduce);
  ExpressionBuilder e;
  const auto operand = [&](TensorId id) {
    return e.input(int(std::find(operands.begin(), operands.end(), id) - operands.begin()));
  };
  std::vector<Value> arguments;
  for (int i = 0; i < p.expression.inputs; ++i) arguments.push_back(operand(pointwise.inputs[size_t(i)]));
  const Value value = e.inline_expression(p.expression, arguments)[0];
  arguments.clear();
  for (int i = 0; i < r.expression.inputs; ++i) {
    const TensorId id = reduce.inputs[size_t(i)];
    arguments.push_back(id == pointwise.outputs[0] ? value : operand(id));
  }
  std::vector<Value> results = e.inline_expression(r.expression, arguments);
  results.push_back(value);
  Node node = reduce;
  node.inputs = operands;
  node.outputs.push_back(stored);
  std::vector<DType> types = r.stored;
  types.push_back(graph.at(stored).dtype);
  node.attributes = std::make_shared<ReduceAttributes>(e.finish(results, int(operands.size())), r.kind, r.n,
                                                       r.h, r.w, r.c, std::move(types));
  return node;
}

}  // namespace ren
