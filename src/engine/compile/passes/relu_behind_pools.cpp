// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ir/builder.h"

namespace ren {
namespace {

bool is_relu(const Node& node) {
  if (node.op != Op::pointwise || node.outputs.size() != 1) return false;
  const Expression& e = node.as<PointwiseAttributes>().expression;
  const ExprNode& last = e.nodes[size_t(e.outputs[0])];
  if (e.inputs != 1 || last.prim != Prim::max) return false;
  const ExprNode &a = e.nodes[size_t(last.a)], &b = e.nodes[size_t(last.b)];
  const auto is_pair = [](const ExprNode& x, const ExprNode& zero) {
    return x.prim == Prim::input && zero.prim == Prim::constant && zero.value == 0;
  };
  return is_pair(a, b) || is_pair(b, a);
}

class ReluBehindPools {
 public:
  explicit ReluBehindPools(Graph& graph) : graph_(graph), builder_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size();) {
      const std::optional<size_t> pool = is_relu(graph_.nodes[i]) ? pool_behind(i) : std::nullopt;
      if (pool)
        move(i, *pool);  // another node is in its place now
      else
        ++i;
    }
  }

 private:
  int64_t sample_elements(TensorId id) const {
    const Shape& s = graph_.at(id).shape;
    return s.h * s.w * s.c;
  }

  // The max pool that alone reads the ReLU's value and has fewer.
  std::optional<size_t> pool_behind(size_t relu) const {
    const TensorId value = graph_.nodes[relu].outputs[0];
    if (is_seen_otherwise(graph_, value) || is_one_pass_with_others(graph_.nodes[relu].inputs[0])) return {};
    std::optional<size_t> reader;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto& inputs = graph_.nodes[i].inputs;
      if (std::find(inputs.begin(), inputs.end(), value) == inputs.end()) continue;
      if (reader || graph_.nodes[i].op != Op::max_pool) return {};
      reader = i;
    }
    if (!reader || sample_elements(graph_.nodes[*reader].outputs[0]) >= sample_elements(value)) return {};
    return reader;
  }

  // What normalises, or another expression, takes the ReLU along for nothing.
  bool is_one_pass_with_others(TensorId x) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      const bool joins = node.op == Op::pointwise || node.op == Op::batch_norm || node.op == Op::layer_norm ||
                         node.op == Op::group_norm;
      return joins && node.outputs[0] == x;
    });
  }

  void move(size_t relu, size_t pool) {
    Node& r = graph_.nodes[relu];
    Node& p = graph_.nodes[pool];
    const TensorId pooled = builder_.tensor(p.name, graph_.at(p.outputs[0]).type());
    p.inputs[0] = r.inputs[0];
    r.inputs[0] = pooled;
    r.outputs[0] = p.outputs[0];
    p.outputs[0] = pooled;
    const auto first = graph_.nodes.begin();
    std::rotate(first + std::ptrdiff_t(relu), first + std::ptrdiff_t(relu) + 1,
                first + std::ptrdiff_t(pool) + 1);
  }

  Graph& graph_;
  GraphBuilder builder_;
};

}  // namespace

// max(pool(x), 0) is pool(max(x, 0)), and the gradients are the same: a window whose maximum isn't above zero
// passes none either way, and of any other the first maximum is the same. Where pools compute, inference has
// the ReLU there for nothing.
void relu_behind_pools(Graph& graph, const PassContext& context) {
  if (context.training() || !context.spec.target.computes_in_pools) ReluBehindPools(graph).run();
}

}  // namespace ren
