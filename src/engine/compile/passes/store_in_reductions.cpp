// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/compile/passes/storing_reduction.h"

namespace ren {

// Merges a pointwise node into the reduction right behind it that reads its value.
void store_in_reductions(Graph& graph, const PassContext& context) {
  if (!context.spec.target.stores_in_reductions) return;
  std::vector<Node> out;
  out.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (!out.empty() && can_store(graph, out.back(), node)) {
      const TensorId value = out.back().outputs[0];
      const auto reads = operands_of(node);
      if (std::find(reads.begin(), reads.end(), value) != reads.end()) {
        Node merged = storing_reduction(graph, out.back(), node, value);
        out.back() = std::move(merged);
        continue;
      }
    }
    out.push_back(std::move(node));
  }
  graph.nodes = std::move(out);
}

}  // namespace ren
