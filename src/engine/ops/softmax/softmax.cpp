// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/softmax/softmax.h"

#include <cmath>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  return {inputs[0]};
}

std::vector<TensorType> infer_backward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 2);
  check_float("the output gradient", inputs[0]);
  check_same_shape("the output gradient", inputs[0].shape, inputs[1].shape);
  return {inputs[1]};
}

void reference(const ReferenceCall& call) {
  const bool log = call.node.as<SoftmaxAttributes>().log;
  const Shape& shape = call.input_shape(0);
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* x = call.inputs[0]->data() + i * shape.c;
    double* y = call.outputs[0]->data() + i * shape.c;
    double largest = x[0], sum = 0;
    for (int64_t c = 1; c < shape.c; ++c) largest = std::max(largest, x[c]);
    for (int64_t c = 0; c < shape.c; ++c) sum += std::exp(x[c] - largest);
    for (int64_t c = 0; c < shape.c; ++c)
      y[c] = log ? x[c] - largest - std::log(sum) : std::exp(x[c] - largest) / sum;
  }
}

// softmax: dx = y * (dy - sum(dy * y)); log-softmax: dx = dy - exp(y) * sum(dy)
void reference_backward(const ReferenceCall& call) {
  const bool log = call.node.as<SoftmaxAttributes>().log;
  const Shape& shape = call.input_shape(0);
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* dy = call.inputs[0]->data() + i * shape.c;
    const double* y = call.inputs[1]->data() + i * shape.c;
    double* dx = call.outputs[0]->data() + i * shape.c;
    double sum = 0;
    for (int64_t c = 0; c < shape.c; ++c) sum += log ? dy[c] : dy[c] * y[c];
    for (int64_t c = 0; c < shape.c; ++c) dx[c] = log ? dy[c] - std::exp(y[c]) * sum : y[c] * (dy[c] - sum);
  }
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  context.set_gradient(
      0, emit(context.builder(), Op::softmax_backward, node.name, {dy, node.outputs[0]}, node.attributes)[0]);
}

}  // namespace

std::string SoftmaxAttributes::text() const { return log ? "log" : ""; }

const OpDefinition& softmax_definition() {
  static const OpDefinition definition{"softmax", infer, reference, gradient};
  return definition;
}

const OpDefinition& softmax_backward_definition() {
  static const OpDefinition definition{"softmax_backward", infer_backward, reference_backward, nullptr};
  return definition;
}

}  // namespace ren
