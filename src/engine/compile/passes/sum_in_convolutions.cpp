// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/passes.h"
#include "engine/ir/builder.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/conv/conv.h"

namespace ren {

// Only of 16-bit values: there the sums' rounding is below that of the values.
void sum_in_convolutions(Graph& graph, const PassContext& context) {
  if (!context.spec.target.sums_in_convolutions || !context.training()) return;
  constexpr size_t kBias = 2;
  GraphBuilder builder(graph);
  std::vector<int32_t> writers(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (node.op == Op::conv) writers[size_t(node.outputs[0])] = int32_t(i);
    if (node.op != Op::batch_norm_statistics) continue;
    const TensorId y = node.inputs[0];
    const int32_t writer = writers[size_t(y)];
    if (writer < 0 || !is_16bit(graph.at(y).dtype)) continue;
    Node& conv = graph.nodes[size_t(writer)];
    if (conv.inputs.size() > kBias && conv.inputs[kBias] != kNoTensor) continue;
    auto attributes = std::make_shared<ConvAttributes>(conv.as<ConvAttributes>());
    if (attributes->sums) continue;
    attributes->sums = true;
    conv.attributes = std::move(attributes);
    node.inputs.resize(kSquares + 1, kNoTensor);
    for (const size_t k : {kSums, kSquares}) {
      const TensorId sums = builder.tensor(conv.name + (k == kSums ? ".sums" : ".squares"),
                                           {{1, 1, 1, graph.at(y).shape.c}, DType::f32}, Region::F);
      conv.outputs.push_back(sums);
      node.inputs[k] = sums;
    }
  }
}

}  // namespace ren
