// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/compile/passes/storing_reduction.h"
#include "engine/ir/builder.h"
#include "engine/plan/op_memory.h"

namespace ren {
namespace {

// What is written again costs a pass of writing over so many bytes, a hundredth of the time of a step when
// all saved activations are an eighth.
constexpr int64_t kShare = 8;

// An activation between a normalisation and a convolution, say: backward reads it once more, for the
// gradient of the convolution's weights. The sums of the normalisation's own gradient read what it is made
// of, so they can write it again, and until then its memory is free.
struct Candidate {
  size_t producer = 0, reader = 0, reduce = 0;  // nodes
  int64_t bytes = 0;                            // of one sample, so that every batch size decides alike
};

class Recompute {
 public:
  explicit Recompute(Graph& graph) : graph_(graph), builder_(graph) {}

  void run() {
    find_readers();
    std::vector<Candidate> candidates = find_candidates();
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
    const int64_t wanted = saved_bytes() / kShare;
    std::vector<size_t> after(graph_.nodes.size());  // the node behind which each runs
    for (size_t i = 0; i < after.size(); ++i) after[i] = i;
    std::vector<bool> stores(graph_.nodes.size(), false);
    int64_t done = 0;
    for (const Candidate& c : candidates) {
      if (done >= wanted) break;
      if (stores[c.reduce] || after[c.reader] != c.reader) continue;
      stores[c.reduce] = true;
      apply(c);
      after[c.reader] = c.reduce + 1;
      done += c.bytes;
    }
    reorder(after);
  }

 private:
  int64_t sample_bytes(TensorId id) const {
    const Tensor& t = graph_.at(id);
    return int64_t(bytes_of(t.dtype, uint64_t(t.shape.h * t.shape.w * t.shape.c)));
  }

  void find_readers() {
    readers_.resize(graph_.tensors.size());
    writers_.assign(graph_.tensors.size(), -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] != kNoTensor && reads_bytes(node.op, k))
          readers_[size_t(graph_.storage(node.inputs[k]))].push_back(i);
      for (const TensorId id : node.outputs)
        if (id != kNoTensor && graph_.storage(id) == id) writers_[size_t(id)] = int64_t(i);
    }
  }

  bool is_backward(size_t node) const { return graph_.nodes[node].phase == Phase::backward; }

  // Of what forward leaves to backward.
  int64_t saved_bytes() const {
    int64_t sum = 0;
    for (size_t id = 0; id < graph_.tensors.size(); ++id)
      if (graph_.tensors[id].region == Region::F && writers_[id] >= 0 && !is_backward(size_t(writers_[id])) &&
          std::any_of(readers_[id].begin(), readers_[id].end(), [&](size_t r) { return is_backward(r); }))
        sum += sample_bytes(TensorId(id));
    return sum;
  }

  std::vector<Candidate> find_candidates() const {
    std::vector<Candidate> found;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::pointwise || node.phase != Phase::forward || node.outputs.size() != 1) continue;
      const TensorId value = node.outputs[0];
      if (graph_.at(value).keep || graph_.at(value).region != Region::F || is_seen_otherwise(value)) continue;
      std::vector<size_t> late;
      for (const size_t r : readers_[size_t(value)])
        if (is_backward(r)) late.push_back(r);
      if (late.size() != 1 || graph_.nodes[late[0]].op != Op::conv_backward_weights) continue;
      if (const auto reduce = find_reduce(node, late[0]))
        found.push_back({i, late[0], *reduce, sample_bytes(value)});
    }
    return found;
  }

  bool is_seen_otherwise(TensorId value) const {
    const auto is_output = [&](const GraphOutput& o) { return graph_.storage(o.value) == value; };
    const auto is_alias = [&](const Tensor& t) { return t.alias_of == value; };
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(), is_output) ||
           std::any_of(graph_.tensors.begin(), graph_.tensors.end(), is_alias);
  }

  // The sums behind `reader` that read all wide operands of `pointwise`.
  std::optional<size_t> find_reduce(const Node& pointwise, size_t reader) const {
    for (const TensorId wide : pointwise.inputs) {
      if (!is_as_large(wide, pointwise.outputs[0])) continue;
      for (const size_t i : readers_[size_t(graph_.storage(wide))]) {
        const Node& node = graph_.nodes[i];
        if (i < reader || !can_store(graph_, pointwise, node)) continue;
        const auto reads = operands_of(node);
        const auto has = [&](TensorId id) {
          return sample_bytes(id) * kShare <= sample_bytes(pointwise.outputs[0]) ||
                 std::find(reads.begin(), reads.end(), id) != reads.end();
        };
        if (std::all_of(pointwise.inputs.begin(), pointwise.inputs.end(), has) && may_wait(reader, i + 1))
          return i;
      }
    }
    return {};
  }

  bool is_as_large(TensorId a, TensorId b) const {
    const Shape &s = graph_.at(a).shape, &t = graph_.at(b).shape;
    return s.h == t.h && s.w == t.w && s.c == t.c;
  }

  // Nothing between reads what the node writes.
  bool may_wait(size_t node, size_t until) const {
    for (const TensorId id : graph_.nodes[node].outputs)
      for (const size_t r : readers_[size_t(graph_.storage(id))])
        if (r <= until) return false;
    return until < graph_.nodes.size() && is_backward(until);
  }

  void apply(const Candidate& c) {
    const Node pointwise = graph_.nodes[c.producer];
    const TensorId value = pointwise.outputs[0];
    const TensorId again =
        builder_.tensor(graph_.at(value).name + ".recomputed", graph_.at(value).type(), Region::F);
    graph_.nodes[c.reduce] = storing_reduction(graph_, pointwise, graph_.nodes[c.reduce], again);
    graph_.nodes[c.reader].inputs[0] = again;
  }

  // The node right behind the sums goes on with what they read, so it comes first.
  void reorder(const std::vector<size_t>& after) {
    std::vector<std::vector<size_t>> runs(graph_.nodes.size());
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] == i) runs[i].push_back(i);
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] != i) runs[after[i]].push_back(i);
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (const auto& run : runs)
      for (const size_t i : run) nodes.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(nodes);
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<std::vector<size_t>> readers_;  // of its bytes, by owner of storage
  std::vector<int64_t> writers_;              // node, or -1
};

}  // namespace

void recompute(Graph& graph, const PassContext& context) {
  if (context.spec.target.stores_in_reductions && context.training()) Recompute(graph).run();
}

}  // namespace ren
