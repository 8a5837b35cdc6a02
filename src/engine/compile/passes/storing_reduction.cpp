// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/storing_reduction.h"

#include "engine/compile/passes/expression_nodes.h"

namespace ren {

bool can_store(const Graph& graph, const Node& pointwise, const Node& reduce) {
  if (pointwise.op != Op::pointwise || pointwise.outputs.size() != 1 || !is_sum_by_channels(reduce))
    return false;
  if (expression_of(pointwise).uses_random() || !is_16bit(graph.at(pointwise.outputs[0]).dtype)) return false;
  if (joint_operands(pointwise, reduce).size() > kMostOperands) return false;
  return graph.at(pointwise.outputs[0]).shape == broadcast_shape(graph, operands_of(reduce));
}

Node storing_reduction(const Graph& graph, const Node& pointwise, const Node& reduce, TensorId stored) {
  const auto& r = reduce.as<ReduceAttributes>();
  JointExpression joint = join_expressions(pointwise, reduce);
  std::vector<Value> results = joint.second;
  results.push_back(joint.first[0]);
  std::vector<DType> types = r.stored;
  types.push_back(graph.at(stored).dtype);
  Node node = reduce;
  node.inputs = joint.operands;
  node.outputs.push_back(stored);
  node.attributes =
      std::make_shared<ReduceAttributes>(joint.finish(results), r.kind, r.n, r.h, r.w, r.c, std::move(types));
  return node;
}

}  // namespace ren
