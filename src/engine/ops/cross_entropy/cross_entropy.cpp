// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

void check(const Node& node, std::span<const TensorType> inputs, size_t scalars) {
  check_arity(node, inputs, 2 + scalars, 2 + scalars);
  check_float("the logits", inputs[0]);
  const Shape &logits = inputs[0].shape, &labels = inputs[1].shape;
  if (inputs[1].dtype != DType::i32 || labels != Shape{logits.n, logits.h, logits.w, 1})
    fail(StatusCode::invalid_model, "labels are {} {}; one i32 class index a row of the logits {} is needed",
         name_of(inputs[1].dtype), to_string(labels), to_string(logits));
  for (size_t i = 2; i < inputs.size(); ++i)
    if (inputs[i].dtype != DType::f32 || inputs[i].shape.elements() != 1)
      fail(StatusCode::invalid_model, "input {} must be one f32 scalar", i);
  const auto& a = node.as<CrossEntropyAttributes>();
  if (!(a.label_smoothing >= 0 && a.label_smoothing <= 1))
    fail(StatusCode::invalid_argument, "label smoothing {} is not in 0..1", a.label_smoothing);
}

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check(node, inputs, 1);
  const TensorType scalar{{1, 1, 1, 1}, DType::f32};
  return {scalar, scalar, scalar};
}

std::vector<TensorType> infer_backward(const Node& node, std::span<const TensorType> inputs) {
  check(node, inputs, 2);
  return {{inputs[0].shape, node.as<CrossEntropyAttributes>().gradient_type}};
}

// One row of logits in double: its log-sum-exp, shifted by the maximum.
double log_sum_exp(const double* z, int64_t classes) {
  double largest = z[0], sum = 0;
  for (int64_t c = 1; c < classes; ++c) largest = std::max(largest, z[c]);
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
  return largest + std::log(sum);
}

// How many classes come before the target in the order of falling logits.
int64_t rank_of(const double* z, int64_t classes, int64_t target) {
  int64_t rank = 0;
  for (int64_t c = 0; c < classes; ++c) rank += z[c] > z[target] || (z[c] == z[target] && c < target);
  return std::isnan(z[target]) ? classes : rank;
}

double row_loss(const CrossEntropyAttributes& a, const double* z, int64_t classes, int64_t target) {
  if (target < 0 || target >= classes) return std::numeric_limits<double>::quiet_NaN();
  const double norm = log_sum_exp(z, classes), smoothing = a.label_smoothing;
  double loss = (1 - smoothing) * (norm - z[target]);
  for (int64_t c = 0; c < classes; ++c) loss += smoothing / double(classes) * (norm - z[c]);
  return loss;
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<CrossEntropyAttributes>();
  const Shape& shape = call.input_shape(0);
  double loss = 0, correct = 0, correct5 = 0;
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* z = call.inputs[0]->data() + i * shape.c;
    const auto target = int64_t((*call.inputs[1])[size_t(i)]);
    if (target == a.ignore_index) continue;
    loss += row_loss(a, z, shape.c, target);
    if (target < 0 || target >= shape.c) continue;
    const int64_t rank = rank_of(z, shape.c, target);
    correct += rank < 1;
    correct5 += rank < 5;
  }
  if (call.outputs[0]) (*call.outputs[0])[0] = double(a.weight) * (*call.inputs[2])[0] * loss;
  if (call.outputs[1]) (*call.outputs[1])[0] = correct;
  if (call.outputs[2]) (*call.outputs[2])[0] = correct5;
}

void reference_backward(const ReferenceCall& call) {
  const auto& a = call.node.as<CrossEntropyAttributes>();
  const Shape& shape = call.input_shape(0);
  const double factor = double(a.weight) * (*call.inputs[2])[0] * (*call.inputs[3])[0],
               smoothing = a.label_smoothing;
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* z = call.inputs[0]->data() + i * shape.c;
    double* dz = call.outputs[0]->data() + i * shape.c;
    const auto target = int64_t((*call.inputs[1])[size_t(i)]);
    const bool ignored = target == a.ignore_index, wrong = !ignored && (target < 0 || target >= shape.c);
    const double norm = log_sum_exp(z, shape.c);
    for (int64_t c = 0; c < shape.c; ++c) {
      const double wanted = (c == target ? 1 - smoothing : 0) + smoothing / double(shape.c);
      dz[c] = ignored ? 0 : factor * (std::exp(z[c] - norm) - wanted);
      if (wrong) dz[c] = std::numeric_limits<double>::quiet_NaN();
    }
  }
}

// A root of the backward pass: it needs no gradient of its outputs.
void gradient(GradientContext& context) {
  if (!is_wanted(context, 0)) return;
  const Node& node = context.node();
  context.set_gradient(
      0, emit(context.builder(), Op::cross_entropy_backward, node.name,
              {node.inputs[0], node.inputs[1], node.inputs[2], context.graph().scalar(Scalar::loss_scale)},
              node.attributes)[0]);
}

}  // namespace

std::string CrossEntropyAttributes::text() const {
  return fmt::format("weight={} label_smoothing={} ignore_index={} gradient={}", weight, label_smoothing,
                     ignore_index, name_of(gradient_type));
}

const OpDefinition& cross_entropy_definition() {
  static const OpDefinition definition{"cross_entropy", infer, reference, gradient};
  return definition;
}

const OpDefinition& cross_entropy_backward_definition() {
  static const OpDefinition definition{"cross_entropy_backward", infer_backward, reference_backward, nullptr};
  return definition;
}

}  // namespace ren
