// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/slice/slice.h"

namespace ren {
namespace {

// Kernels read so many neighbouring channels at once, and memory moves pieces of so many bytes.
constexpr int64_t kNeighbours = 8, kPiece = 32;

// A slice of channels, as the gradient of a concatenation is, only copies. Expressions read what it is cut
// out of.
class ReadWindows {
 public:
  explicit ReadWindows(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!is_window(node) || is_seen_otherwise(graph_, node.outputs[0])) continue;
      const std::vector<Use> uses = uses_of(graph_, node.outputs[0]);
      const auto may = [&](const Use& use) { return may_view(use); };
      if (uses.empty() || !std::all_of(uses.begin(), uses.end(), may)) continue;
      apply(node, uses);
      gone[i] = true;
    }
    std::vector<Node> rest;
    for (size_t i = 0; i < gone.size(); ++i)
      if (!gone[i]) rest.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(rest);
  }

 private:
  bool is_window(const Node& node) const {
    if (node.op != Op::slice) return false;
    const auto& a = node.as<SliceAttributes>();
    const Tensor &from = graph_.at(node.inputs[0]), &to = graph_.at(node.outputs[0]);
    return a.axis == Axis::c && a.step == 1 && a.begin % kNeighbours == 0 && a.count % kNeighbours == 0 &&
           from.shape.c % kNeighbours == 0 && a.count < from.shape.c && from.dtype == to.dtype &&
           a.count * int64_t(size_of(to.dtype)) >= kPiece;
  }

  // Of the node's whole channels, by an operand that nothing views yet.
  bool may_view(const Use& use) const {
    if (!takes_views(*use.node) || use.input >= operands_of(*use.node).size()) return false;
    return !use.node->as<ExpressionAttributes>().view(use.input).any() &&
           graph_.at(use.node->inputs[use.input]).shape.c == full_shape_of(graph_, *use.node).c;
  }

  void apply(const Node& slice, const std::vector<Use>& uses) {
    const auto& a = slice.as<SliceAttributes>();
    for (const Use& use : uses) {
      set_view(use, {1, 1, a.begin, a.count});
      use.node->inputs[use.input] = slice.inputs[0];
    }
  }

  Graph& graph_;
};

}  // namespace

void read_windows(Graph& graph, const PassContext& context) {
  if (context.spec.target.views_operands) ReadWindows(graph).run();
}

}  // namespace ren
