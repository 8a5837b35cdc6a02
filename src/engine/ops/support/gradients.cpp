// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/gradients.h"

#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {

bool is_parameter(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.at(graph.storage(id));
  return tensor.parameter >= 0 || is_parameter_family(tensor.region);
}

std::vector<TensorId> emit_pointwise(GradientContext& context, std::string name, Expression expression,
                                     std::vector<TensorId> operands, std::vector<DType> types) {
  return emit(context.builder(), Op::pointwise, std::move(name), std::move(operands),
              std::make_shared<PointwiseAttributes>(std::move(expression), std::move(types)));
}

std::vector<TensorId> emit_sum(GradientContext& context, std::string name, Expression expression,
                               std::vector<TensorId> operands, Kept kept) {
  return emit(context.builder(), Op::reduce, std::move(name), std::move(operands),
              std::make_shared<ReduceAttributes>(std::move(expression), ReduceKind::sum, kept.n, kept.h,
                                                 kept.w, kept.c));
}

TensorId emit_bias_gradient(GradientContext& context, TensorId dy) {
  ExpressionBuilder b;
  const Value value = b.input(0);
  return emit_sum(context, context.node().name + ".bias_gradient", b.finish({value}, 1), {dy}, kChannels)[0];
}

}  // namespace ren
