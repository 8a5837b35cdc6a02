// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/expression_nodes.h"

#include <algorithm>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/pointwise/operands.h"

namespace ren {
namespace {

template <typename Ids>
bool contains(const Ids& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Does it sum over the samples?
bool joins_samples(const Node& node) {
  switch (node.op) {
    case Op::reduce:
      return !node.as<ReduceAttributes>().n;
    case Op::gemm:
      return node.as<GemmAttributes>().transpose_a;
    case Op::conv_backward_weights:
    case Op::batch_norm_statistics:
    case Op::cross_entropy:
      return true;
    default:
      return false;
  }
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

std::vector<bool> values_per_sample(const Graph& graph) {
  std::vector<bool> found(graph.tensors.size(), false);
  if (graph.input == kNoTensor) return found;
  found[size_t(graph.input)] = true;
  for (const Node& node : graph.nodes) {
    if (joins_samples(node)) continue;
    const auto is_found = [&](TensorId id) { return id != kNoTensor && found[size_t(id)]; };
    if (std::any_of(node.inputs.begin(), node.inputs.end(), is_found))
      for (const TensorId id : node.outputs)
        if (id != kNoTensor) found[size_t(id)] = graph.at(id).shape.n == graph.batch();
  }
  return found;
}

std::vector<Use> uses_of(Graph& graph, TensorId id) {
  std::vector<Use> uses;
  for (Node& node : graph.nodes)
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] == id) uses.push_back({&node, k});
  return uses;
}

bool is_seen_otherwise(const Graph& graph, TensorId id) {
  const Tensor& t = graph.at(id);
  const auto is_output = [&](const GraphOutput& o) { return graph.storage(o.value) == id; };
  const auto is_alias = [&](const Tensor& other) { return other.alias_of == id; };
  return t.keep || t.alias_of != kNoTensor || (t.region != Region::F && t.region != Region::T) ||
         std::any_of(graph.outputs.begin(), graph.outputs.end(), is_output) ||
         std::any_of(graph.tensors.begin(), graph.tensors.end(), is_alias);
}

Shape full_shape_of(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (const TensorId id : operands_of(node)) shapes.push_back(graph.at(id).shape);
  return full_shape(shapes, node.as<ExpressionAttributes>());
}

std::shared_ptr<ExpressionAttributes> copy_attributes(const Node& node) {
  switch (node.op) {
    case Op::pointwise:
      return std::make_shared<PointwiseAttributes>(node.as<PointwiseAttributes>());
    case Op::max_pool:
      return std::make_shared<PoolAttributes>(node.as<PoolAttributes>());
    default:
      return std::make_shared<ReduceAttributes>(node.as<ReduceAttributes>());
  }
}

void set_view(const Use& use, const OperandView& view) {
  auto attributes = copy_attributes(*use.node);
  attributes->views.resize(size_t(attributes->expression.inputs));
  attributes->views[use.input] = view;
  use.node->attributes = std::move(attributes);
}

}  // namespace ren
