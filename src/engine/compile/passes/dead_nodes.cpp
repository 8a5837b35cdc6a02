// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/passes.h"

namespace ren {
namespace {

bool has_effect(const Graph& graph, TensorId id) {
  if (id == kNoTensor) return false;
  const Tensor& t = graph.at(graph.storage(id));
  return t.keep || (t.region != Region::F && t.region != Region::T);
}

}  // namespace

void remove_dead_nodes(Graph& graph) {
  std::vector<bool> read(graph.tensors.size(), false);
  for (const GraphOutput& o : graph.outputs) read[size_t(graph.storage(o.value))] = true;
  std::vector<bool> live(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    bool alive = node.outputs.empty() || node.op == Op::batch_norm_statistics || node.phase == Phase::update;
    for (const TensorId id : node.outputs)
      if (id != kNoTensor) alive |= read[size_t(graph.storage(id))] || has_effect(graph, id);
    live[i] = alive;
    if (!alive) continue;
    for (const TensorId id : node.inputs)
      if (id != kNoTensor) read[size_t(graph.storage(id))] = true;
  }
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (live[i]) kept.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(kept);
}

}  // namespace ren
