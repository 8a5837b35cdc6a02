// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ir/builder.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/batch_norm/from_sums.h"

namespace ren {
namespace {

bool has_sums(const Node& node) {
  return node.op == Op::batch_norm_statistics && node.inputs.size() > kSquares &&
         node.inputs[kSquares] != kNoTensor;
}

// The statistics of a layer as expressions of its sums.
Node expression_of_sums(const Graph& graph, const Node& statistics) {
  const auto& a = statistics.as<BatchNormAttributes>();
  const int64_t rows = graph.at(statistics.inputs[kStatisticsOf]).shape.pixels();
  Node node;
  node.op = Op::pointwise;
  node.name = statistics.name;
  node.inputs = {statistics.inputs[kSums], statistics.inputs[kSquares]};
  node.outputs = statistics.outputs;
  node.attributes = std::make_shared<PointwiseAttributes>(statistics_expression(rows, a.epsilon));
  return node;
}

// `reader` with what it reads of `inner` computed by itself.
Node with_inlined(const Node& inner, const Node& reader) {
  JointExpression joint = join_expressions(inner, reader);
  Node node = reader;
  node.inputs = joint.operands;
  node.inputs.insert(node.inputs.end(), reader.inputs.begin() + expression_of(reader).inputs,
                     reader.inputs.end());
  auto attributes = copy_attributes(reader);
  attributes->expression = joint.finish(joint.second);
  node.attributes = std::move(attributes);
  return node;
}

class StatisticsFromSums {
 public:
  explicit StatisticsFromSums(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node> layers;
    std::set<TensorId> means;
    for (const Node& node : graph_.nodes)
      if (has_sums(node) && !shares_running_statistics(node) && inline_in_forward(node)) {
        layers.push_back(node);
        means.insert(node.outputs[0]);
      }
    if (layers.empty()) return;
    std::erase_if(graph_.nodes, [&](const Node& node) {
      return node.op == Op::batch_norm_statistics && means.count(node.outputs[0]) != 0;
    });
    graph_.nodes.insert(std::find_if(graph_.nodes.begin(), graph_.nodes.end(), is_late), join(layers));
  }

 private:
  static bool is_late(const Node& node) { return node.phase != Phase::forward; }

  static bool reads(const Node& node, TensorId id) {
    return id != kNoTensor && std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  }

  bool is_read(TensorId id) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                       [&](const Node& node) { return reads(node, id); });
  }

  // Two layers that move the same running statistics move them one after the other; joined, all move at once.
  bool shares_running_statistics(const Node& statistics) const {
    const TensorId mean = statistics.inputs[kRunningMean];
    const auto moves = [&](const Node& node) {
      return node.op == Op::batch_norm_statistics && node.inputs[kRunningMean] == mean;
    };
    return mean != kNoTensor && std::count_if(graph_.nodes.begin(), graph_.nodes.end(), moves) > 1;
  }

  // False, and nothing changed, where something else than an expression needs the statistics in forward.
  bool inline_in_forward(const Node& statistics) {
    const Node sums = expression_of_sums(graph_, statistics);
    std::vector<Node*> readers;
    for (Node& node : graph_.nodes)
      if (!is_late(node) && (reads(node, sums.outputs[0]) || reads(node, sums.outputs[1]))) {
        if (!takes_expression(node)) return false;
        readers.push_back(&node);
      }
    for (Node* reader : readers) *reader = with_inlined(sums, *reader);
    return true;
  }

  // What backward reads of all of these layers, and their running statistics.
  Node join(const std::vector<Node>& layers) const {
    auto attributes = std::make_shared<BatchNormFromSumsAttributes>();
    Node node;
    node.op = Op::batch_norm_from_sums;
    node.name = "batch_norm_from_sums";
    for (const Node& layer : layers) {
      const auto& a = layer.as<BatchNormAttributes>();
      attributes->layers.push_back(
          {graph_.at(layer.inputs[kStatisticsOf]).shape.pixels(), a.epsilon, a.keep});
      for (const StatisticsInput k : {kSums, kSquares, kRunningMean, kRunningVariance, kMeanShift})
        node.inputs.push_back(layer.inputs[k]);
      for (const TensorId id : layer.outputs) node.outputs.push_back(is_read(id) ? id : kNoTensor);
    }
    node.attributes = std::move(attributes);
    return node;
  }

  Graph& graph_;
};

}  // namespace

// The launch between a convolution and the normalisation behind it costs as much as the latter may take for a
// small layer. CPUs have no such sums: there the statistics are a pass over the values, and expressions
// are evaluated for each element, without the part that depends on the channel alone put in front.
void statistics_from_sums(Graph& graph, const PassContext& context) {
  if (context.spec.target.sums_in_convolutions && context.training()) StatisticsFromSums(graph).run();
}

}  // namespace ren
