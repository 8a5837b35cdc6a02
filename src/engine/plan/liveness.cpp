// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/liveness.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/plan/op_memory.h"
#include "engine/plan/slot.h"

namespace ren {
namespace {

class LivenessFinder {
 public:
  LivenessFinder(std::span<const Graph* const> graphs, const PlanOptions& options)
      : graphs_(graphs), graph_(*graphs[0]), options_(options), uses_(graph_.tensors.size()) {}

  Liveness run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) touch(graph_.nodes[i], int32_t(i));
    keep_until_end();
    measure();
    make_blocks();
    return std::move(result_);
  }

 private:
  struct Use {
    int32_t first = -1, last = -1;
    uint64_t bytes = 0;
    bool kept = false;
  };

  bool planned(TensorId id) const {
    const Region region = graph_.at(id).region;
    return region == Region::F || region == Region::T;
  }

  void touch(const Node& node, int32_t index) {
    if (node.op == Op::view) return;  // has no kernel
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoTensor || !reads_bytes(node.op, i)) continue;
      Use& use = uses_[size_t(graph_.storage(node.inputs[i]))];
      if (use.first < 0) use.first = 0;  // its value comes from outside
      use.last = index;
    }
    for (const TensorId id : node.outputs) {
      if (id == kNoTensor) continue;
      Use& use = uses_[size_t(graph_.storage(id))];
      if (use.first < 0) use.first = index;
      use.last = index;
    }
  }

  void keep_until_end() {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      Use& use = uses_[size_t(graph_.storage(TensorId(i)))];
      if (!graph_.tensors[i].keep || use.first < 0) continue;
      use.kept = true;
      use.last = int32_t(graph_.nodes.size()) - 1;
    }
  }

  void measure() {
    for (const Graph* graph : graphs_) {
      const TensorId images = graph->input == kNoTensor ? kNoTensor : graph->storage(graph->input);
      for (size_t i = 0; i < graph->tensors.size(); ++i) {
        const TensorId owner = graph->storage(TensorId(i));
        if (!planned(owner)) continue;
        uint64_t& bytes = uses_[size_t(owner)].bytes;
        bytes = std::max(bytes, tensor_bytes(graph->tensors[i], options_, owner == images));
      }
    }
  }

  // Is `operand` as large as `output` in every variant? At batch size 1 alone, a broadcast operand may be.
  bool same_type(TensorId operand, TensorId output) const {
    return std::all_of(graphs_.begin(), graphs_.end(), [&](const Graph* graph) {
      return graph->at(operand).type() == graph->at(output).type();
    });
  }

  bool broadcasts(const Node& node, TensorId owner, TensorId output) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](TensorId id) {
      return id != kNoTensor && graph_.storage(id) == owner && !same_type(id, output);
    });
  }

  // The operand whose bytes `output` takes over, or kNoTensor.
  TensorId find_donor(const Node& node, int32_t index, TensorId output,
                      const std::vector<TensorId>& taken) const {
    const Use& target = uses_[size_t(output)];
    if (target.first != index || graph_.at(output).alias_of != kNoTensor) return kNoTensor;
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor) continue;
      const TensorId owner = graph_.storage(id);
      const Use& use = uses_[size_t(owner)];
      if (graph_.at(owner).region != graph_.at(output).region || use.kept || use.last != index) continue;
      if (owner == output || written_by(node, owner) || broadcasts(node, owner, output)) continue;
      if (std::find(taken.begin(), taken.end(), owner) == taken.end()) return owner;
    }
    return kNoTensor;
  }

  bool written_by(const Node& node, TensorId owner) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](TensorId id) { return id != kNoTensor && graph_.storage(id) == owner; });
  }

  void make_blocks() {
    result_.block_of.assign(graph_.tensors.size(), -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == Op::view) continue;
      for (const TensorId id : node.inputs) add_block(id);  // values from outside
      std::vector<TensorId> taken;
      for (const TensorId id : node.outputs) {
        if (id == kNoTensor || !planned(id) || result_.block_of[size_t(graph_.storage(id))] >= 0) continue;
        const TensorId donor = may_run_in_place(node.op, graph_.at(id).dtype)
                                   ? find_donor(node, int32_t(i), id, taken)
                                   : kNoTensor;
        if (donor == kNoTensor) {
          add_block(id);
        } else {
          taken.push_back(donor);
          join_block(id, result_.block_of[size_t(donor)]);
        }
      }
    }
    for (size_t i = 0; i < graph_.tensors.size(); ++i)
      result_.block_of[i] = result_.block_of[size_t(graph_.storage(TensorId(i)))];
  }

  void add_block(TensorId id) {
    if (id == kNoTensor || !planned(id)) return;
    const TensorId owner = graph_.storage(id);
    const Use& use = uses_[size_t(owner)];
    if (result_.block_of[size_t(owner)] >= 0 || use.first < 0) return;
    result_.block_of[size_t(owner)] = int32_t(result_.blocks.size());
    result_.blocks.push_back({{owner}, graph_.at(owner).region, use.bytes, use.first, use.last});
  }

  void join_block(TensorId output, int32_t index) {
    LiveBlock& block = result_.blocks[size_t(index)];
    result_.block_of[size_t(output)] = index;
    block.tensors.push_back(output);
    block.bytes = std::max(block.bytes, uses_[size_t(output)].bytes);
    block.last = uses_[size_t(output)].last;
  }

  std::span<const Graph* const> graphs_;
  const Graph& graph_;
  const PlanOptions& options_;
  std::vector<Use> uses_;  // by owner of storage
  Liveness result_;
};

template <typename... Args>
void check(bool same, const Variant& a, const Variant& b, fmt::format_string<Args...> format,
           Args&&... args) {
  if (same) return;
  fail(StatusCode::internal, "variants '{}' and '{}' of role {} differ in structure: {}", a.name, b.name,
       name_of(a.role), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

Liveness find_liveness(std::span<const Graph* const> graphs, const PlanOptions& options) {
  return LivenessFinder(graphs, options).run();
}

void check_same_structure(const Variant& a, const Variant& b) {
  const Graph &ga = *a.graph, &gb = *b.graph;
  check(ga.nodes.size() == gb.nodes.size(), a, b, "{} and {} nodes", ga.nodes.size(), gb.nodes.size());
  check(ga.tensors.size() == gb.tensors.size(), a, b, "{} and {} tensors", ga.tensors.size(),
        gb.tensors.size());
  for (size_t i = 0; i < ga.nodes.size(); ++i) {
    const Node &na = ga.nodes[i], &nb = gb.nodes[i];
    check(na.op == nb.op && na.inputs == nb.inputs && na.outputs == nb.outputs, a, b,
          "node {} is {} '{}' and {} '{}'", i, name_of(na.op), na.name, name_of(nb.op), nb.name);
  }
  for (size_t i = 0; i < ga.tensors.size(); ++i) {
    const Tensor &ta = ga.tensors[i], &tb = gb.tensors[i];
    check(ta.dtype == tb.dtype && ta.region == tb.region && ta.parameter == tb.parameter &&
              ta.alias_of == tb.alias_of && ta.keep == tb.keep,
          a, b, "tensor {} is '{}' and '{}'", i, ta.name, tb.name);
  }
}

}  // namespace ren
