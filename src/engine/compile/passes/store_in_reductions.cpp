// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {
namespace {

constexpr size_t kMostOperands = 12;

// Merges a pointwise node into the reduction right behind it that reads its value.
class Merge {
 public:
  Merge(const Graph& graph, const Node& pointwise, const Node& reduce)
      : graph_(graph), pointwise_(pointwise), reduce_(reduce) {}

  bool possible() const {
    if (pointwise_.op != Op::pointwise || reduce_.op != Op::reduce || pointwise_.outputs.size() != 1)
      return false;
    const auto& p = pointwise_.as<PointwiseAttributes>();
    const auto& r = reduce_.as<ReduceAttributes>();
    if (p.expression.uses_random() || r.expression.uses_random() || r.kind != ReduceKind::sum) return false;
    const TensorId value = pointwise_.outputs[0];
    if (!is_16bit(graph_.at(value).dtype)) return false;  // so that it can take an operand's bytes
    const auto reads = std::span(reduce_.inputs).first(size_t(r.expression.inputs));
    if (std::find(reads.begin(), reads.end(), value) == reads.end()) return false;
    if (size_t(p.expression.inputs + r.expression.inputs) > kMostOperands) return false;
    // Elsewhere than in front of a sum by channels the kernel has no columns to keep.
    if (r.n || r.h || r.w || !r.c) return false;
    return graph_.at(value).shape == broadcast_shape(graph_, reads);
  }

  Node merged() const {
    const auto& p = pointwise_.as<PointwiseAttributes>();
    const auto& r = reduce_.as<ReduceAttributes>();
    ExpressionBuilder e;
    std::vector<TensorId> operands;
    const auto operand = [&](TensorId id) {
      const auto found = std::find(operands.begin(), operands.end(), id);
      if (found == operands.end()) operands.push_back(id);
      return e.input(int(std::find(operands.begin(), operands.end(), id) - operands.begin()));
    };
    std::vector<Value> arguments;
    for (int i = 0; i < p.expression.inputs; ++i) arguments.push_back(operand(pointwise_.inputs[size_t(i)]));
    const Value stored = e.inline_expression(p.expression, arguments)[0];
    arguments.clear();
    for (int i = 0; i < r.expression.inputs; ++i) {
      const TensorId id = reduce_.inputs[size_t(i)];
      arguments.push_back(id == pointwise_.outputs[0] ? stored : operand(id));
    }
    std::vector<Value> results = e.inline_expression(r.expression, arguments);
    results.push_back(stored);
    Node node = reduce_;
    node.inputs = operands;
    node.outputs.push_back(pointwise_.outputs[0]);
    std::vector<DType> types = r.stored;
    types.push_back(graph_.at(pointwise_.outputs[0]).dtype);
    node.attributes = std::make_shared<ReduceAttributes>(e.finish(results, int(operands.size())), r.kind, r.n,
                                                         r.h, r.w, r.c, std::move(types));
    return node;
  }

 private:
  const Graph& graph_;
  const Node &pointwise_, &reduce_;
};

}  // namespace

void store_in_reductions(Graph& graph, const PassContext& context) {
  if (!context.spec.target.stores_in_reductions) return;
  std::vector<Node> out;
  out.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (!out.empty()) {
      const Merge merge(graph, out.back(), node);
      if (merge.possible()) {
        Node merged = merge.merged();
        out.back() = std::move(merged);
        continue;
      }
    }
    out.push_back(std::move(node));
  }
  graph.nodes = std::move(out);
}

}  // namespace ren
