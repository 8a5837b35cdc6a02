// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/passes/passes.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/pointwise/pointwise.h"

namespace ren {
namespace {

Expression identity() {
  ExpressionBuilder e;
  return e.finish({e.input(0)}, 1);
}

}  // namespace

void infer_mode(Graph& graph, const PassContext& context) {
  if (context.training()) return;
  for (Node& node : graph.nodes) {
    if (node.op == Op::batch_norm) {
      auto attributes = std::make_shared<BatchNormAttributes>(node.as<BatchNormAttributes>());
      attributes->training = false;
      node.attributes = std::move(attributes);
    } else if (node.op == Op::pointwise && node.as<PointwiseAttributes>().training_only) {
      node.attributes =
          std::make_shared<PointwiseAttributes>(identity(), node.as<PointwiseAttributes>().types);
      node.inputs.resize(1);
    }
  }
}

}  // namespace ren
