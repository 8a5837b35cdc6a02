// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/op.h"

namespace ren {

void rebatch(Graph& graph, const PassContext& context) {
  if (context.variant.batch < 1)
    fail(StatusCode::invalid_argument, "batch size {} is not positive", context.variant.batch);
  graph.at(graph.input).shape.n = context.variant.batch;
  for (const Node& node : graph.nodes) {
    std::vector<TensorType> types;
    for (const TensorId id : node.inputs)
      types.push_back(id == kNoTensor ? TensorType{{0, 0, 0, 0}, DType::f32} : graph.at(id).type());
    std::vector<TensorType> outputs;
    try {
      outputs = definition_of(node.op).infer(node, types);
    } catch (const Error& e) {
      throw Error(e.code(),
                  fmt::format("{} '{}' at batch {}: {}", name_of(node.op), node.name, context.variant.batch,
                              e.what()),
                  name_of(node.op), node.name);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNoTensor) graph.at(node.outputs[i]).shape = outputs[i].shape;
  }
}

}  // namespace ren
