// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"

namespace ren {
namespace {

constexpr size_t kMostOperands = 12;
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
  bool is_candidate(const Node& node) const {
    if (node.op != Op::reduce || node.phase != Phase::backward) return false;
    const auto& a = node.as<ReduceAttributes>();
    return a.kind == ReduceKind::sum && !a.n && !a.h && !a.w && a.c && !a.expression.uses_random();
  }

  Shape full_shape(const Node& node) const { return broadcast_shape(graph_, operands_of(node)); }

  std::optional<size_t> find_other(size_t first) const {
    const Node& node = graph_.nodes[first];
    const Shape full = full_shape(node);
    std::vector<TensorId> written;  // between the two, and so not there yet at the first
    for (size_t i = first + 1; i < graph_.nodes.size() && i <= first + kNear; ++i) {
      const Node& other = graph_.nodes[i];
      if (is_candidate(other) && full_shape(other) == full && reads_nothing_of(other, written) &&
          shares_a_tensor(node, other, full) && joint_operands(node, other).size() <= kMostOperands)
        return i;
      for (const TensorId id : other.outputs)
        if (id != kNoTensor) written.push_back(graph_.storage(id));
    }
    return {};
  }

  bool reads_nothing_of(const Node& node, const std::vector<TensorId>& written) const {
    return std::none_of(node.inputs.begin(), node.inputs.end(), [&](TensorId id) {
      return id != kNoTensor &&
             std::find(written.begin(), written.end(), graph_.storage(id)) != written.end();
    });
  }

  // By more than the shape, which a statistic has, too, where there is one pixel of one sample: variants of
  // all batch sizes must come out alike.
  bool shares_a_tensor(const Node& a, const Node& b, const Shape& full) const {
    const auto reads = operands_of(b);
    return std::any_of(reads.begin(), reads.end(), [&](TensorId id) {
      if (!is_16bit(graph_.at(id).dtype) || graph_.at(id).shape != full) return false;
      return std::find(a.inputs.begin(), a.inputs.end(), id) != a.inputs.end() ||
             std::find(a.outputs.begin(), a.outputs.end(), id) != a.outputs.end();
    });
  }

  static std::vector<TensorId> joint_operands(const Node& a, const Node& b) {
    std::vector<TensorId> operands(operands_of(a).begin(), operands_of(a).end());
    for (const TensorId id : operands_of(b))
      if (std::find(operands.begin(), operands.end(), id) == operands.end() &&
          std::find(a.outputs.begin(), a.outputs.end(), id) == a.outputs.end())
        operands.push_back(id);
    return operands;
  }

  // What `a` stores and `b` reads is taken from where it is computed.
  static Node merged(const Node& a, const Node& b) {
    const auto &first = a.as<ReduceAttributes>(), &second = b.as<ReduceAttributes>();
    const std::vector<TensorId> operands = joint_operands(a, b);
    ExpressionBuilder e;
    const auto operand = [&](TensorId id) {
      return e.input(int(std::find(operands.begin(), operands.end(), id) - operands.begin()));
    };
    std::vector<Value> arguments;
    for (const TensorId id : operands_of(a)) arguments.push_back(operand(id));
    const std::vector<Value> of_a = e.inline_expression(first.expression, arguments);
    arguments.clear();
    for (const TensorId id : operands_of(b)) {
      const auto stored = std::find(a.outputs.begin(), a.outputs.end(), id);
      arguments.push_back(stored == a.outputs.end() ? operand(id) : of_a[size_t(stored - a.outputs.begin())]);
    }
    const std::vector<Value> of_b = e.inline_expression(second.expression, arguments);

    Node node = a;
    node.inputs = operands;
    node.outputs.clear();
    std::vector<Value> results;
    std::vector<DType> types;
    const auto take = [&](const Node& from, const std::vector<Value>& values, size_t begin, size_t end) {
      results.insert(results.end(), values.begin() + std::ptrdiff_t(begin),
                     values.begin() + std::ptrdiff_t(end));
      node.outputs.insert(node.outputs.end(), from.outputs.begin() + std::ptrdiff_t(begin),
                          from.outputs.begin() + std::ptrdiff_t(end));
    };
    take(a, of_a, 0, first.reduced());
    take(b, of_b, 0, second.reduced());
    take(a, of_a, first.reduced(), of_a.size());
    take(b, of_b, second.reduced(), of_b.size());
    types.insert(types.end(), first.stored.begin(), first.stored.end());
    types.insert(types.end(), second.stored.begin(), second.stored.end());
    node.attributes =
        std::make_shared<ReduceAttributes>(e.finish(results, int(operands.size())), first.kind, first.n,
                                           first.h, first.w, first.c, std::move(types));
    return node;
  }

  Graph& graph_;
};

}  // namespace

void merge_reductions(Graph& graph, const PassContext& context) {
  if (context.spec.target.stores_in_reductions && context.training()) MergeReductions(graph).run();
}

}  // namespace ren
