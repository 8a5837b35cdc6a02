// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace ren {
namespace {

// Everything but F and T holds values before the program begins.
bool exists_at_start(const Graph& graph, TensorId id) {
  const Region region = graph.at(id).region;
  return region != Region::F && region != Region::T;
}

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view pass) : graph_(graph), pass_(pass) {}

  void run() {
    check_tensors();
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const Parameter& p = graph_.parameters[i];
      check(in_range(p.value) && graph_.at(p.value).region == Region::W, "parameter '{}' has no tensor in W",
            p.name);
      check(graph_.at(p.value).shape == p.shape, "parameter '{}' and its tensor differ in shape", p.name);
    }
    written_.assign(graph_.tensors.size(), false);
    if (graph_.input != kNoTensor && !input_is_written()) written_[size_t(graph_.input)] = true;
    for (const Node& node : graph_.nodes) check_node(node);
    for (const GraphOutput& o : graph_.outputs)
      check(in_range(o.value) && readable(o.value), "output '{}' is never written", o.name);
  }

 private:
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (condition) return;
    throw Error(StatusCode::internal,
                fmt::format("after pass '{}': {}", pass_, fmt::format(format, std::forward<Args>(args)...)));
  }

  bool in_range(TensorId id) const { return id >= 0 && size_t(id) < graph_.tensors.size(); }

  bool readable(TensorId id) const {
    return exists_at_start(graph_, graph_.storage(id)) || written_[size_t(graph_.storage(id))];
  }

  // Before load_batch is attached, the input comes from outside.
  bool input_is_written() const {
    for (const Node& node : graph_.nodes)
      for (const TensorId id : node.outputs)
        if (id == graph_.input) return true;
    return false;
  }

  void check_tensors() {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& t = graph_.tensors[i];
      check(t.shape.n > 0 && t.shape.h > 0 && t.shape.w > 0 && t.shape.c > 0, "tensor %{} '{}' has shape {}",
            i, t.name, to_string(t.shape));
      if (t.alias_of == kNoTensor) continue;
      check(in_range(t.alias_of) && t.alias_of != TensorId(i), "tensor %{} aliases %{}", i, t.alias_of);
      const Tensor& root = graph_.at(t.alias_of);
      check(root.shape.elements() == t.shape.elements() && root.dtype == t.dtype && root.region == t.region,
            "tensor %{} aliases %{} of another size, type or region", i, t.alias_of);
    }
  }

  void check_node(const Node& node) {
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor) continue;
      check(in_range(id), "node '{}' reads tensor {}", node.name, id);
      check(readable(id), "node '{}' ({}) reads %{} '{}' before it is written", node.name, name_of(node.op),
            id, graph_.at(id).name);
    }
    for (const TensorId id : node.outputs) {
      if (id == kNoTensor) continue;
      check(in_range(id), "node '{}' writes tensor {}", node.name, id);
      if (graph_.at(id).alias_of != kNoTensor) {
        check(node.op == Op::view, "node '{}' writes the alias %{}", node.name, id);
        continue;
      }
      check(!written_[size_t(id)] || exists_at_start(graph_, id), "node '{}' writes %{} a second time",
            node.name, id);
      written_[size_t(id)] = true;
    }
  }

  const Graph& graph_;
  std::string_view pass_;
  std::vector<bool> written_;
};

}  // namespace

void verify(const Graph& graph, std::string_view pass) { Verifier(graph, pass).run(); }

}  // namespace ren
