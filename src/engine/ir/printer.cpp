// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace ren {
namespace {

std::string reference(TensorId id) {
  if (id == kNoTensor) return "-";
  return fmt::format("%{}", id);
}

std::string declaration(const Graph& graph, TensorId id) {
  if (id == kNoTensor) return "-";
  const Tensor& t = graph.at(id);
  std::string text = fmt::format("%{}:{}{}{}", id, name_of(t.region), name_of(t.dtype), to_string(t.shape));
  if (t.alias_of != kNoTensor) text += fmt::format("=%{}", t.alias_of);
  if (t.keep) text += "!";
  return text;
}

const char* prefix(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "fwd";
    case Phase::backward:
      return "bwd";
    case Phase::update:
      return "upd";
  }
  return "?";
}

}  // namespace

std::string to_string(const Graph& graph) {
  std::string out = fmt::format("graph {} batch {}\n", graph.name, graph.batch());
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& p = graph.parameters[i];
    out += fmt::format("param {} %{} {} {} {}{}\n", i, p.value, p.name, to_string(p.shape), name_of(p.kind),
                       p.trainable ? "" : " frozen");
  }
  for (const Node& node : graph.nodes) {
    out += prefix(node.phase);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      out += fmt::format("{}{}", i == 0 ? " " : ", ", declaration(graph, node.outputs[i]));
    out += fmt::format(" = {}(", name_of(node.op));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      out += fmt::format("{}{}", i == 0 ? "" : ", ", reference(node.inputs[i]));
    out += ")";
    if (node.attributes) out += fmt::format(" {{{}}}", node.attributes->text());
    if (!node.name.empty()) out += fmt::format("  # {}", node.name);
    out += "\n";
  }
  for (const GraphOutput& o : graph.outputs) out += fmt::format("output {} {}\n", o.name, reference(o.value));
  return out;
}

}  // namespace ren
