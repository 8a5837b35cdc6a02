// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pointwise/pointwise.h"

#include "engine/base/status.h"
#include "engine/ops/pointwise/operands.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  const auto& attributes = node.as<PointwiseAttributes>();
  const Shape full = infer_operands(node, inputs);
  const size_t outputs = attributes.expression.outputs.size();
  if (!attributes.types.empty() && attributes.types.size() != outputs)
    fail(StatusCode::invalid_model, "{} output types for {} outputs", attributes.types.size(), outputs);
  std::vector<TensorType> types(outputs, {full, DType::f32});
  for (size_t k = 0; k < attributes.types.size(); ++k) {
    types[k].dtype = attributes.types[k];
    if (types[k].dtype != DType::b1) check_float("an output", types[k]);
  }
  return types;
}

void reference(const ReferenceCall& call) {
  size_t element = 0;
  for_each_element(call, [&](int64_t, int64_t, int64_t, int64_t, const std::vector<double>& values) {
    for (size_t k = 0; k < values.size(); ++k)
      if (call.outputs[k]) (*call.outputs[k])[element] = values[k];
    ++element;
  });
}

// d operand = the derivative over operands, outputs and the outputs' gradients; outputs that
// nothing flows into are left out of the expression first.
void gradient(GradientContext& context) {
  const Node& node = context.node();
  const Expression& whole = node.as<PointwiseAttributes>().expression;
  require(node.as<PointwiseAttributes>().views.empty(), "{}: only passes after autodiff spread operands",
          node.name);
  std::vector<int> flowing, wanted;
  std::vector<TensorId> operands(node.inputs.begin(), node.inputs.begin() + whole.inputs), gradients;
  const Shape full = broadcast_shape(context.graph(), operands);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const TensorId dy = context.output_gradient(k);
    if (dy == kNoTensor) continue;
    flowing.push_back(int(k));
    gradients.push_back(dy);
  }
  for (int i = 0; i < whole.inputs; ++i)
    if (is_wanted(context, size_t(i))) wanted.push_back(i);
  if (flowing.empty() || wanted.empty()) return;
  for (int k : flowing) operands.push_back(node.outputs[size_t(k)]);
  operands.insert(operands.end(), gradients.begin(), gradients.end());
  const Expression derivative = differentiate(select_outputs(whole, flowing), wanted);
  const TensorId random_state = whole.uses_random() ? node.inputs[size_t(whole.inputs)] : kNoTensor;
  emit_operand_gradients(context, derivative, wanted, operands, full, random_state);
}

}  // namespace

const OpDefinition& pointwise_definition() {
  static const OpDefinition definition{"pointwise", infer, reference, gradient};
  return definition;
}

}  // namespace ren
