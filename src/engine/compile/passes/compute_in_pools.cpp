// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/plan/op_memory.h"

namespace ren {
namespace {

// Each value is computed for every window that covers it, as often as this at most, which is less than
// storing and reading it costs.
constexpr int64_t kMostTimes = 4;

class ComputeInPools {
 public:
  explicit ComputeInPools(Graph& graph) : graph_(graph), per_sample_(values_per_sample(graph)) {}

  void run() {
    for (Node& pool : graph_.nodes) {
      if (pool.op != Op::max_pool || !is_worth_it(pool)) continue;
      const Node* writer = writer_of(pool.inputs[0]);
      if (writer == nullptr || !is_read_by_one(pool.inputs[0])) continue;
      if (const auto wide = wide_operand(*writer)) compute(*writer, pool, *wide);
    }
    remove_dead_nodes(graph_);
  }

 private:
  // With a single pixel there is no telling what repeats over pixels.
  bool is_worth_it(const Node& pool) const {
    const auto& a = pool.as<PoolAttributes>();
    const Shape& s = graph_.at(pool.inputs[0]).shape;
    return !a.computes() && s.h * s.w > 1 && a.kernel_h * a.kernel_w <= kMostTimes * a.stride_h * a.stride_w;
  }

  const Node* writer_of(TensorId value) const {
    const auto writes = [&](const Node& node) {
      return node.op == Op::pointwise && node.outputs[0] == value;
    };
    const auto found = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), writes);
    return found == graph_.nodes.end() ? nullptr : &*found;
  }

  // A shape that is looked at is no reading.
  bool is_read_by_one(TensorId value) const {
    if (is_seen_otherwise(graph_, value) || graph_.at(value).region != Region::F) return false;
    int readers = 0;
    for (const Node& node : graph_.nodes)
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] == value) {
          if (reads_bytes(node.op, k))
            ++readers;
          else if (node.op != Op::max_pool_backward)
            return false;
        }
    return readers == 1;
  }

  // The operand that is as large as the value and of its type, where all others repeat over samples and
  // pixels and the expression is cheap.
  std::optional<TensorId> wide_operand(const Node& node) const {
    const Expression& e = expression_of(node);
    const auto is_dear = [](const ExprNode& n) { return is_heavy(n.prim); };
    if (node.outputs.size() != 1 || std::any_of(e.nodes.begin(), e.nodes.end(), is_dear)) return {};
    const TensorType type = graph_.at(node.outputs[0]).type();
    std::optional<TensorId> wide;
    for (const TensorId id : operands_of(node)) {
      const TensorType& t = graph_.at(id).type();
      const bool repeats = !per_sample_[size_t(id)] && t.shape.n == 1 && t.shape.h == 1 && t.shape.w == 1 &&
                           t.dtype != DType::b1;
      if (!repeats && (wide || t != type)) return {};
      if (!repeats) wide = id;
    }
    return wide;
  }

  void compute(const Node& writer, Node& pool, TensorId wide) {
    const TensorId value = pool.inputs[0];
    auto attributes = std::make_shared<PoolAttributes>(pool.as<PoolAttributes>());
    attributes->expression = expression_of(writer);
    pool.attributes = std::move(attributes);
    pool.inputs = writer.inputs;
    for (Node& node : graph_.nodes)  // of which it wants to know the shape
      if (node.op == Op::max_pool_backward) std::replace(node.inputs.begin(), node.inputs.end(), value, wide);
  }

  Graph& graph_;
  const std::vector<bool> per_sample_;
};

}  // namespace

void compute_in_pools(Graph& graph, const PassContext& context) {
  if (context.spec.target.computes_in_pools) ComputeInPools(graph).run();
}

}  // namespace ren
