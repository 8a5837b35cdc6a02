// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"

namespace ren {
namespace {

constexpr size_t kNear = 16;  // nodes apart: beyond, results would wait for long

// Two sums by channels over one index space that read the same tensor become one: both branches of a residual
// block begin with a normalisation of the same gradient.
class MergeReductions {
 public:
  explicit MergeReductions(Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_candidate(graph_.nodes[i]) || graph_.nodes[i].as<ReduceAttributes>().stored.empty()) continue;
      if (const auto other = find_other(i)) {
        graph_.nodes[i] = merged(graph_.nodes[i], graph_.nodes[*other]);
        graph_.nodes.erase(graph_.nodes.begin() + std::ptrdiff_t(*other));
      }
    }
  }

 private:
  static bool is_candidate(const Node& node) {
    return node.phase == Phase::backward && is_sum_by_channels(node);
  }

  Shape full_shape(const Node& node) const { return broadcast_shape(graph_, operands_of(node)); }

  std::optional<size_t> find_other(size_t first) const {
    const Node& node = graph_.nodes[first];
    const Shape full = full_shape(node);
    // Not there yet at the first: its sums, and what is written between the two.
    const auto sums = node.as<ReduceAttributes>().reduced();
    std::vector<TensorId> written(node.outputs.begin(), node.outputs.begin() + std::ptrdiff_t(sums));
    for (size_t i = first + 1; i < graph_.nodes.size() && i <= first + kNear; ++i) {
      const Node& other = graph_.nodes[i];
      if (is_candidate(other) && full_shape(other) == full && !reads_one_of(graph_, other, written) &&
          share_a_tensor(graph_, node, other, full) && joint_operands(node, other).size() <= kMostOperands)
        return i;
      for (const TensorId id : other.outputs)
        if (id != kNoTensor) written.push_back(graph_.storage(id));
    }
    return {};
  }

  // What `a` stores and `b` reads is taken from where it is computed.
  static Node merged(const Node& a, const Node& b) {
    const auto &first = a.as<ReduceAttributes>(), &second = b.as<ReduceAttributes>();
    JointExpression joint = join_expressions(a, b);
    Node node = a;
    node.inputs = joint.operands;
    node.outputs.clear();
    std::vector<Value> results;
    std::vector<DType> types;
    const auto take = [&](const Node& from, const std::vector<Value>& values, size_t begin, size_t end) {
      results.insert(results.end(), values.begin() + std::ptrdiff_t(begin),
                     values.begin() + std::ptrdiff_t(end));
      node.outputs.insert(node.outputs.end(), from.outputs.begin() + std::ptrdiff_t(begin),
                          from.outputs.begin() + std::ptrdiff_t(end));
    };
    take(a, joint.first, 0, first.reduced());
    take(b, joint.second, 0, second.reduced());
    take(a, joint.first, first.reduced(), joint.first.size());
    take(b, joint.second, second.reduced(), joint.second.size());
    types.insert(types.end(), first.stored.begin(), first.stored.end());
    types.insert(types.end(), second.stored.begin(), second.stored.end());
    node.attributes = std::make_shared<ReduceAttributes>(joint.finish(results), first.kind, first.n, first.h,
                                                         first.w, first.c, std::move(types));
    return node;
  }

  Graph& graph_;
};

}  // namespace

void merge_reductions(Graph& graph, const PassContext& context) {
  if (context.spec.target.stores_in_reductions && context.training()) MergeReductions(graph).run();
}

}  // namespace ren
