// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

// The partners' labels and the share may follow the scalars.
void check(const Node& node, std::span<const TensorType> inputs, size_t scalars) {
  check_arity(node, inputs, 2 + scalars, 4 + scalars);
  const bool mixed = has_input(node, 2 + scalars);
  if (mixed != has_input(node, 3 + scalars))
    fail(StatusCode::invalid_model, "partners' labels and the share of the own ones belong together");
  if (mixed && inputs[2 + scalars] != inputs[1])
    fail(StatusCode::invalid_model, "the partners' labels differ from the labels in shape or type");
  check_float("the logits", inputs[0]);
  const Shape &logits = inputs[0].shape, &labels = inputs[1].shape;
  if (inputs[1].dtype != DType::i32 || labels != Shape{logits.n, logits.h, logits.w, 1})
    fail(StatusCode::invalid_model, "labels are {} {}; one i32 class index a row of the logits {} is needed",
         name_of(inputs[1].dtype), to_string(labels), to_string(logits));
  for (size_t i = 2; i < inputs.size(); ++i)
    if (i != 2 + scalars && has_input(node, i) &&
        (inputs[i].dtype != DType::f32 || inputs[i].shape.elements() != 1))
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

// What row i is compared with: one label or two, and the share of each.
struct Target {
  int64_t label;
  double share;
};
std::vector<Target> targets_of(const ReferenceCall& call, size_t i, size_t scalars) {
  const auto label = int64_t((*call.inputs[1])[i]);
  const auto* partners = optional_input(call, 2 + scalars);
  if (partners == nullptr) return {{label, 1.0}};
  const double share = (*call.inputs[3 + scalars])[0];
  return {{label, share}, {int64_t((*partners)[i]), 1 - share}};
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<CrossEntropyAttributes>();
  const Shape& shape = call.input_shape(0);
  double loss = 0, correct = 0, correct5 = 0;
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* z = call.inputs[0]->data() + i * shape.c;
    const std::vector<Target> targets = targets_of(call, size_t(i), 1);
    for (const Target& t : targets)
      if (t.label != a.ignore_index) loss += t.share * row_loss(a, z, shape.c, t.label);
    const int64_t judged = targets.back().share > targets[0].share ? targets.back().label : targets[0].label;
    if (judged == a.ignore_index || judged < 0 || judged >= shape.c) continue;
    const int64_t rank = rank_of(z, shape.c, judged);
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
    std::fill_n(dz, shape.c, 0.0);
    const double norm = log_sum_exp(z, shape.c);
    for (const Target& t : targets_of(call, size_t(i), 2)) {
      if (t.label == a.ignore_index) continue;
      const bool wrong = t.label < 0 || t.label >= shape.c;
      for (int64_t c = 0; c < shape.c; ++c) {
        const double wanted = (c == t.label ? 1 - smoothing : 0) + smoothing / double(shape.c);
        dz[c] += wrong ? std::numeric_limits<double>::quiet_NaN()
                       : t.share * factor * (std::exp(z[c] - norm) - wanted);
      }
    }
  }
}

// A root of the backward pass: it needs no gradient of its outputs.
void gradient(GradientContext& context) {
  if (!is_wanted(context, 0)) return;
  const Node& node = context.node();
  std::vector<TensorId> inputs = node.inputs;  // those of mixed samples stand behind all scalars
  inputs.insert(inputs.begin() + 3, context.graph().scalar(Scalar::loss_scale));
  context.set_gradient(0, emit(context.builder(), Op::cross_entropy_backward, node.name, std::move(inputs),
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
