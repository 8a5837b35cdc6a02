// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/passes.h"
#include "engine/ops/batch_norm/batch_norm.h"

namespace ren {

// conv(x) + b, normalised by its own statistics, is conv(x) normalised: the bias costs a pass forward
// and one for its gradient, which is zero. Inference keeps it, and so does anything else that reads it.
void absorb_bias(Graph& graph, const PassContext& context) {
  if (!context.training()) return;
  constexpr size_t kBias = 2, kShift = 5;
  std::vector<int> readers(graph.tensors.size(), 0);
  for (const Tensor& t : graph.tensors)
    if (t.alias_of != kNoTensor) ++readers[size_t(t.alias_of)];
  for (const GraphOutput& o : graph.outputs) ++readers[size_t(o.value)];
  std::vector<Node*> writers(graph.tensors.size(), nullptr);
  for (Node& node : graph.nodes) {
    for (const TensorId id : node.inputs)
      if (id != kNoTensor) ++readers[size_t(id)];
    if (node.op == Op::conv) writers[size_t(node.outputs[0])] = &node;
  }
  for (Node& norm : graph.nodes) {
    if (norm.op != Op::batch_norm || !norm.as<BatchNormAttributes>().training) continue;
    Node* conv = writers[size_t(norm.inputs[0])];
    if (conv == nullptr || readers[size_t(norm.inputs[0])] != 1) continue;
    if (conv->inputs.size() <= kBias || conv->inputs[kBias] == kNoTensor) continue;
    norm.inputs.resize(kShift + 1, kNoTensor);
    norm.inputs[kShift] = conv->inputs[kBias];
    conv->inputs[kBias] = kNoTensor;
  }
}

}  // namespace ren
