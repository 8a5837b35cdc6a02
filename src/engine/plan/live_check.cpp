// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/live_check.h"

#include <algorithm>
#include <map>

#include "engine/base/status.h"
#include "engine/plan/op_memory.h"
#include "engine/plan/slot.h"

namespace ren {
namespace {

constexpr TensorId kWorkspace = -2;

class LiveChecker {
 public:
  LiveChecker(const MemoryPlan& plan, size_t index, const Variant& variant, const PlanOptions& options)
      : plan_(plan), index_(index), graph_(*variant.graph), choices_(variant.choices), options_(options) {}

  std::vector<std::string> run() {
    find_ends();
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].op != Op::view) step(i);
    return std::move(problems_);
  }

 private:
  struct Held {
    uint64_t end;
    TensorId tensor;  // owner, or kWorkspace
  };

  bool planned(TensorId id) const {
    if (id == kNoTensor) return false;
    const Region region = graph_.at(graph_.storage(id)).region;
    return region == Region::F || region == Region::T;
  }

  // Last node that needs each owner's bytes, found from the end; and what is read before it is written,
  // which therefore lives from the beginning.
  void find_ends() {
    const size_t n = graph_.nodes.size();
    ends_.assign(graph_.tensors.size(), n);  // n: never touched
    bytes_.assign(graph_.tensors.size(), 0);
    std::vector<bool> read_first(graph_.tensors.size(), false), kept(graph_.tensors.size(), false);
    const TensorId images = graph_.input == kNoTensor ? kNoTensor : graph_.storage(graph_.input);
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const size_t owner = size_t(graph_.storage(TensorId(t)));
      bytes_[owner] =
          std::max(bytes_[owner], tensor_bytes(graph_.tensors[t], options_, TensorId(owner) == images));
      if (graph_.tensors[t].keep) kept[owner] = true;
    }
    for (size_t i = n; i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (node.op == Op::view) continue;
      const auto touch = [&](TensorId id, bool read) {
        if (!planned(id)) return;
        const size_t owner = size_t(graph_.storage(id));
        if (ends_[owner] == n) ends_[owner] = i;
        read_first[owner] = read;  // the earliest touch has the last word
      };
      for (const TensorId id : node.outputs) touch(id, false);
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (reads_bytes(node.op, k)) touch(node.inputs[k], true);
    }
    kept_ = std::move(kept);
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (read_first[t] && ends_[t] < n) hold(TensorId(t), "the beginning");
  }

  std::string name(TensorId id) const {
    return id == kWorkspace ? "a workspace" : "'" + graph_.at(id).name + "'";
  }

  void step(size_t i) {
    const Node& node = graph_.nodes[i];
    const std::string where = fmt::format("node {} {} '{}'", i, name_of(node.op), node.name);
    const uint64_t workspace = choices_ ? align_up(choices_->nodes[i].workspace_bytes) : 0;
    if (workspace > 0) hold(kWorkspace, where, plan_.workspace(index_, i), workspace);
    std::vector<TensorId> outputs;
    for (const TensorId id : node.outputs)
      if (planned(id) && !is_held(graph_.storage(id))) outputs.push_back(graph_.storage(id));
    std::vector<TensorId> taken;  // a second output in the same place finds the first one there
    for (const TensorId output : outputs) {
      const auto at = held_.find(plan_.offset(index_, output));
      if (at != held_.end() && may_take(node, i, output, at->second.tensor, taken)) {
        taken.push_back(at->second.tensor);
        held_.erase(at);
      }
      hold(output, where);
    }
    for (auto it = held_.begin(); it != held_.end();)
      it = it->second.tensor == kWorkspace || ends_[size_t(it->second.tensor)] == i ? release(it)
                                                                                    : std::next(it);
  }

  std::map<uint64_t, Held>::iterator release(std::map<uint64_t, Held>::iterator it) {
    const bool forever = it->second.tensor != kWorkspace && kept_[size_t(it->second.tensor)];
    return forever ? std::next(it) : held_.erase(it);
  }

  bool is_held(TensorId owner) const {
    const auto at = held_.find(plan_.offset(index_, owner));
    return at != held_.end() && at->second.tensor == owner;
  }

  // May `output` be written where `operand` is? Only as an elementwise op's own, full-sized, dying operand.
  bool may_take(const Node& node, size_t i, TensorId output, TensorId operand,
                const std::vector<TensorId>& taken) const {
    if (!may_run_in_place(node.op, graph_.at(output).dtype) || operand == kWorkspace ||
        kept_[size_t(operand)])
      return false;
    if (ends_[size_t(operand)] != i || std::find(taken.begin(), taken.end(), operand) != taken.end())
      return false;
    bool is_operand = false;
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor || graph_.storage(id) != operand) continue;
      if (!(graph_.at(id).type() == graph_.at(output).type())) return false;
      is_operand = true;
    }
    for (const TensorId id : node.outputs)
      if (id != kNoTensor && graph_.storage(id) == operand) return false;
    return is_operand;
  }

  void hold(TensorId owner, const std::string& where) {
    hold(owner, where, plan_.offset(index_, owner), bytes_[size_t(owner)]);
  }

  void hold(TensorId owner, const std::string& where, uint64_t offset, uint64_t bytes) {
    if (offset == kNone) {
      problems_.push_back(fmt::format("{} has no place at {}", name(owner), where));
      return;
    }
    auto next = held_.lower_bound(offset);
    if (next != held_.begin() && std::prev(next)->second.end > offset) --next;
    if (next != held_.end() && next->first < offset + bytes) {
      problems_.push_back(fmt::format("at {}: {} ({} bytes at {}) overlaps {}, which is still needed", where,
                                      name(owner), bytes, offset, name(next->second.tensor)));
      return;
    }
    held_[offset] = {offset + bytes, owner};
  }

  const MemoryPlan& plan_;
  size_t index_;
  const Graph& graph_;
  const Choices* choices_;
  const PlanOptions& options_;
  std::vector<size_t> ends_;
  std::vector<uint64_t> bytes_;
  std::vector<bool> kept_;
  std::map<uint64_t, Held> held_;  // by offset; never overlapping
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> find_live_overlaps(const MemoryPlan& plan, size_t index, const Variant& variant,
                                            const PlanOptions& options) {
  return LiveChecker(plan, index, variant, options).run();
}

}  // namespace ren
