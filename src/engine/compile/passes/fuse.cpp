// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/base/status.h"
#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"

namespace ren {
namespace {

constexpr int kMaxPrims = 120;  // of a fused expression, for the same reason as kMostOperands
constexpr int64_t kNarrow = 8;  // an operand of at most this fraction of another costs little beside it

// What reading a value would take if it were not stored.
struct Definition {
  size_t node = 0, output = 0;
  bool stored = true;
  std::set<TensorId> leaves;  // the stored tensors that its expression reads
  int prims = 0;
  int64_t heavy = 0;
};

// A pointwise value is stored when something other than an expression reads it, or when its
// readers would move more bytes recomputing it than storing costs; else it becomes part of each
// reader's expression. One that is stored still becomes part of a reader's expression where that reader
// has what it is made of at hand: the mask of ReLU behind BatchNormalization, in the gradient, which reads
// the normalisation's input anyway.
class Fuse {
 public:
  Fuse(Graph& graph, int64_t heavy_prim_bytes) : graph_(graph), heavy_prim_bytes_(heavy_prim_bytes) {}

  void run() {
    remove_dead_nodes(graph_);
    gather();
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].op == Op::pointwise) decide(i);
    for (const Node& node : graph_.nodes)
      if (takes_expression(node)) rebuild(node);
    apply();
    remove_dead_nodes(graph_);
  }

 private:
  // Of one sample, whatever the batch: all variants of a program must come out alike. What all samples share,
  // a parameter or a statistic, is read once a batch and counts nothing.
  int64_t bytes(TensorId id) const {
    const Tensor& t = graph_.at(id);
    return t.region == Region::F ? int64_t(bytes_of(t.dtype, uint64_t(sample_elements(id)))) : 0;
  }

  int64_t sample_elements(TensorId id) const {
    const Shape& s = graph_.at(id).shape;
    return s.h * s.w * s.c;
  }

  int64_t bytes(const std::set<TensorId>& ids, const std::set<TensorId>& without) const {
    int64_t sum = 0;
    for (const TensorId id : ids)
      if (without.count(id) == 0) sum += bytes(id);
    return sum;
  }

  void gather() {
    pinned_.assign(graph_.tensors.size(), false);
    per_sample_ = values_per_sample(graph_);
    readers_.resize(graph_.tensors.size());
    for (const GraphOutput& o : graph_.outputs) pin(o.value);
    for (const Tensor& t : graph_.tensors)
      if (t.alias_of != kNoTensor) pinned_[size_t(t.alias_of)] = true;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const std::optional<Shape> full =
          takes_expression(node) ? std::optional(broadcast_shape(graph_, operands_of(node))) : std::nullopt;
      for (const TensorId id : node.inputs) {
        if (id == kNoTensor) continue;
        // A narrow operand is cheap to store and dear to recompute for every element.
        if (!full || graph_.at(id).shape != *full || repeats(node, id)) pin(id);
        if (readers_[size_t(id)].empty() || readers_[size_t(id)].back() != i)
          readers_[size_t(id)].push_back(i);
      }
    }
  }

  // The same for all samples, for each of which the node computes something.
  bool repeats(const Node& node, TensorId id) const {
    const auto is_per_sample = [&](TensorId other) {
      return other != kNoTensor && per_sample_[size_t(other)];
    };
    return !is_per_sample(id) && std::any_of(node.inputs.begin(), node.inputs.end(), is_per_sample);
  }

  void pin(TensorId id) { pinned_[size_t(graph_.storage(id))] = true; }

  bool inlined(TensorId id) const {
    const auto it = definitions_.find(id);
    return it != definitions_.end() && !it->second.stored;
  }

  std::set<TensorId> leaves_of(const Node& node) const {
    std::set<TensorId> leaves;
    for (const TensorId id : operands_of(node)) {
      if (inlined(id)) {
        const auto& more = definitions_.at(id).leaves;
        leaves.insert(more.begin(), more.end());
      } else {
        leaves.insert(id);
      }
    }
    return leaves;
  }

  void decide(size_t index) {
    const Node& node = graph_.nodes[index];
    Definition d;
    d.node = index;
    d.leaves = leaves_of(node);
    for (const ExprNode& e : expression_of(node).nodes) {
      d.prims += e.prim != Prim::input && e.prim != Prim::constant;
      d.heavy += is_heavy(e.prim);
    }
    for (const TensorId id : operands_of(node)) {
      if (!inlined(id)) continue;
      d.prims += definitions_.at(id).prims;
      d.heavy += definitions_.at(id).heavy;
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const TensorId id = node.outputs[k];
      if (id == kNoTensor) continue;
      d.output = k;
      d.stored = must_store(id, d) || !cheaper_inlined(id, d);
      definitions_[id] = d;
    }
  }

  bool must_store(TensorId id, const Definition& d) const {
    const Tensor& t = graph_.at(id);
    return pinned_[size_t(id)] || t.keep || t.region != Region::F || readers_[size_t(id)].empty() ||
           d.leaves.size() > kMostOperands || d.prims > kMaxPrims;
  }

  bool cheaper_inlined(TensorId id, const Definition& d) const {
    const std::vector<size_t>& readers = readers_[size_t(id)];
    const int64_t k = int64_t(readers.size());
    const int64_t compute = d.heavy * heavy_prim_bytes_ * sample_elements(id);
    const int64_t stored = bytes(id) * (1 + k) + bytes(d.leaves, {}) + compute;
    int64_t recomputed = k * compute;
    for (const size_t reader : readers) {
      const std::set<TensorId> others = leaves_of(graph_.nodes[reader]);
      std::set<TensorId> joined = others;
      joined.insert(d.leaves.begin(), d.leaves.end());
      if (joined.size() > kMostOperands + 1) return false;  // + 1: `id` itself is still among them
      recomputed += bytes(d.leaves, others);
    }
    return recomputed <= stored;
  }

  // The stored values that `node` recomputes: what that reads besides is next to nothing.
  std::set<TensorId> recomputed_by(const Node& node) const {
    std::set<TensorId> reads = leaves_of(node), recomputed;
    for (const TensorId id : leaves_of(node)) {
      const auto it = definitions_.find(id);
      if (it == definitions_.end() || it->second.prims > kMaxPrims) continue;
      const Definition& d = it->second;
      std::set<TensorId> others = reads;
      others.erase(id);
      const int64_t more = bytes(d.leaves, others);
      const int64_t compute = d.heavy * heavy_prim_bytes_ * sample_elements(id);
      if (kNarrow * more > bytes(id) || more + compute >= bytes(id)) continue;
      others.insert(d.leaves.begin(), d.leaves.end());
      if (others.size() > kMostOperands) continue;
      reads = std::move(others);
      recomputed.insert(id);
    }
    return recomputed;
  }

  // Gives a node the expression over stored tensors that its own and all inlined ones make.
  class Rebuilder {
   public:
    Rebuilder(const Fuse& owner, std::set<TensorId> recomputed)
        : owner_(owner), recomputed_(std::move(recomputed)) {}

    Value value(TensorId id) {
      const auto seen = values_.find(id);
      if (seen != values_.end()) return seen->second;
      Value v;
      if (owner_.inlined(id) || recomputed_.count(id) != 0) {
        const Definition& d = owner_.definitions_.at(id);
        v = outputs(owner_.graph_.nodes[d.node])[d.output];
      } else {
        operands_.push_back(id);
        v = builder_.input(int(operands_.size()) - 1);
      }
      return values_[id] = v;
    }

    // An inlined 16-bit value is not rounded: its readers see it in FP32.
    std::vector<Value> outputs(const Node& node) {
      std::vector<Value> arguments;
      for (const TensorId id : operands_of(node)) arguments.push_back(value(id));
      return builder_.inline_expression(expression_of(node), arguments);
    }

    Expression finish(const std::vector<Value>& results, std::vector<TensorId>& operands) {
      const Expression whole = builder_.finish(results, int(operands_.size()));
      std::vector<int32_t> kept;
      Expression compact = compact_inputs(whole, kept);
      operands.clear();
      for (const int32_t i : kept) operands.push_back(operands_[size_t(i)]);
      return compact;
    }

   private:
    const Fuse& owner_;
    const std::set<TensorId> recomputed_;
    ExpressionBuilder builder_;
    std::vector<TensorId> operands_;
    std::map<TensorId, Value> values_;
  };

  struct Rebuilt {
    std::vector<TensorId> inputs, outputs;
    AttributesPtr attributes;
  };

  // Expressions are made from the graph as it was, so that the order doesn't matter; apply()
  // puts them in.
  void rebuild(const Node& node) {
    std::set<TensorId> recomputed = recomputed_by(node);
    bool changes = !recomputed.empty();
    for (const TensorId id : operands_of(node)) changes |= inlined(id);
    for (const TensorId id : node.outputs) changes |= id != kNoTensor && inlined(id);
    if (!changes) return;
    Rebuilder rebuilder(*this, std::move(recomputed));
    const std::vector<Value> all = rebuilder.outputs(node);
    std::vector<Value> results;
    std::vector<TensorId> outputs;
    std::vector<DType> types;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const TensorId id = node.outputs[k];
      if (id == kNoTensor || inlined(id)) continue;
      results.push_back(all[k]);
      outputs.push_back(id);
      types.push_back(graph_.at(id).dtype);
    }
    if (outputs.empty()) return;  // dead now; other expressions still read it while they are rebuilt
    Rebuilt r;
    r.outputs = std::move(outputs);
    Expression expression = rebuilder.finish(results, r.inputs);
    const Shape before = broadcast_shape(graph_, operands_of(node));
    if (r.inputs.empty() || broadcast_shape(graph_, r.inputs) != before)
      return;  // keep: a constant swallowed the shape
    if (expression.uses_random()) r.inputs.push_back(graph_.scalar(Scalar::random_state));
    if (node.op == Op::pointwise) {
      r.attributes = std::make_shared<PointwiseAttributes>(std::move(expression), std::move(types));
    } else {
      const auto& old = node.as<ReduceAttributes>();
      r.attributes =
          std::make_shared<ReduceAttributes>(std::move(expression), old.kind, old.n, old.h, old.w, old.c);
    }
    rebuilt_[&node - graph_.nodes.data()] = std::move(r);
  }

  void apply() {
    for (auto& [index, r] : rebuilt_) {
      Node& node = graph_.nodes[size_t(index)];
      node.inputs = std::move(r.inputs);
      node.outputs = std::move(r.outputs);
      node.attributes = std::move(r.attributes);
    }
  }

  Graph& graph_;
  const int64_t heavy_prim_bytes_;  // what evaluating one expensive primitive costs
  std::vector<bool> pinned_, per_sample_;
  std::vector<std::vector<size_t>> readers_;
  std::map<TensorId, Definition> definitions_;
  std::map<std::ptrdiff_t, Rebuilt> rebuilt_;
};

}  // namespace

void fuse(Graph& graph, const PassContext& context) {
  Fuse(graph, context.spec.target.heavy_prim_bytes).run();
}

}  // namespace ren
