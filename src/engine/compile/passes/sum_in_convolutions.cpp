// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/compile/passes/passes.h"
#include "engine/ir/builder.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {
namespace {

constexpr size_t kBias = 2;  // of a convolution's inputs

// Of a tensor and of its squares, by channels.
struct ChannelSums {
  TensorId sums, squares;
};

// Sums for the statistics that need them, from where they cost least: a convolution gives them in passing,
// those of a concatenation are its parts', and of a part that no convolution made they are reduced once, for
// all concatenations that it is in. Only of 16-bit values: there the sums' rounding is below that of the
// values.
class SumInConvolutions {
 public:
  explicit SumInConvolutions(Graph& graph) : graph_(graph), builder_(graph) {}

  void run() {
    added_.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const TensorId id : graph_.nodes[i].outputs)
        if (id != kNoTensor) writers_[id] = i;
    for (const Node& node : graph_.nodes)
      if (node.op == Op::batch_norm_statistics) note_parts(node.inputs[kStatisticsOf]);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].op == Op::batch_norm_statistics) give_sums(i);
    insert_added();
  }

 private:
  const Node* writer(TensorId id) const {
    const auto it = writers_.find(id);
    return it == writers_.end() ? nullptr : &graph_.nodes[it->second];
  }

  bool made_by_convolution(TensorId id) const {
    const Node* const node = writer(id);
    return node != nullptr && node->op == Op::conv && node->outputs[0] == id &&
           is_16bit(graph_.at(id).dtype) &&
           (node->inputs.size() <= kBias || node->inputs[kBias] == kNoTensor);
  }

  // The parts of a concatenation of which a convolution sums at least one.
  std::vector<TensorId> parts_of(TensorId id) const {
    const Node* const node = writer(id);
    if (node == nullptr || node->op != Op::concat || node->as<ConcatAttributes>().axis != Axis::c ||
        !is_16bit(graph_.at(id).dtype))
      return {};
    const bool gains = std::any_of(node->inputs.begin(), node->inputs.end(), [&](TensorId part) {
      return made_by_convolution(part) || !parts_of(part).empty();
    });
    return gains ? node->inputs : std::vector<TensorId>();
  }

  void note_parts(TensorId id) {
    for (const TensorId part : parts_of(id)) {
      is_part_.insert(part);
      note_parts(part);
    }
  }

  void give_sums(size_t statistics) {
    const std::optional<ChannelSums> sums =
        sums_of(graph_.nodes[statistics].inputs[kStatisticsOf], statistics);
    if (!sums) return;
    Node& node = graph_.nodes[statistics];
    node.inputs.resize(kSquares + 1, kNoTensor);
    node.inputs[kSums] = sums->sums;
    node.inputs[kSquares] = sums->squares;
  }

  // What has to be added for them comes in front of the node `before`.
  std::optional<ChannelSums> sums_of(TensorId id, size_t before) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const std::vector<TensorId> parts = parts_of(id);
    std::optional<ChannelSums> sums;
    if (made_by_convolution(id))
      sums = sums_in(graph_.nodes[writers_[id]]);
    else if (!parts.empty())
      sums = joined(id, parts, before);
    else if (is_part_.count(id) != 0)
      sums = reduced(id, before);
    if (sums) known_[id] = *sums;
    return sums;
  }

  ChannelSums tensors_for(TensorId id, const std::string& name) {
    const TensorType type{{1, 1, 1, graph_.at(id).shape.c}, DType::f32};
    const TensorId sums = builder_.tensor(name + ".sums", type, Region::F);
    return {sums, builder_.tensor(name + ".squares", type, Region::F)};
  }

  ChannelSums sums_in(Node& convolution) {
    auto attributes = std::make_shared<ConvAttributes>(convolution.as<ConvAttributes>());
    attributes->sums = true;
    convolution.attributes = std::move(attributes);
    const ChannelSums sums = tensors_for(convolution.outputs[0], convolution.name);
    convolution.outputs.insert(convolution.outputs.end(), {sums.sums, sums.squares});
    return sums;
  }

  ChannelSums joined(TensorId id, const std::vector<TensorId>& parts, size_t before) {
    std::vector<TensorId> sums, squares;
    for (const TensorId part : parts) {
      const ChannelSums of_part = *sums_of(part, before);
      sums.push_back(of_part.sums);
      squares.push_back(of_part.squares);
    }
    const Node& concatenation = *writer(id);
    const ChannelSums whole = tensors_for(id, concatenation.name);
    add(before, concatenation.name, Op::concat, sums, {whole.sums}, concatenation.attributes);
    add(before, concatenation.name, Op::concat, squares, {whole.squares}, concatenation.attributes);
    return whole;
  }

  ChannelSums reduced(TensorId id, size_t before) {
    ExpressionBuilder e;
    const Value x = e.input(0);
    const ChannelSums sums = tensors_for(id, graph_.at(id).name);
    add(before, graph_.at(id).name, Op::reduce, {id}, {sums.sums, sums.squares},
        std::make_shared<ReduceAttributes>(e.finish({x, e.mul(x, x)}, 1), ReduceKind::sum, false, false,
                                           false, true));
    return sums;
  }

  void add(size_t before, const std::string& name, Op op, std::vector<TensorId> inputs,
           std::vector<TensorId> outputs, AttributesPtr attributes) {
    Node node;
    node.op = op;
    node.phase = Phase::forward;
    node.name = name + ".sums";
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.attributes = std::move(attributes);
    added_[before].push_back(std::move(node));
  }

  void insert_added() {
    std::vector<Node> nodes;
    for (size_t i = 0; i < added_.size(); ++i) {
      std::move(added_[i].begin(), added_[i].end(), std::back_inserter(nodes));
      nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::map<TensorId, size_t> writers_;  // the node that writes a tensor
  std::set<TensorId> is_part_;
  std::map<TensorId, ChannelSums> known_;
  std::vector<std::vector<Node>> added_;  // in front of each node
};

}  // namespace

void sum_in_convolutions(Graph& graph, const PassContext& context) {
  if (context.spec.target.sums_in_convolutions && context.training()) SumInConvolutions(graph).run();
}

}  // namespace ren
