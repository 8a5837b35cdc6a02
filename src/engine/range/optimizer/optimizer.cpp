// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/base/half.h"
#include "engine/ops/support/infer.h"
#include "engine/range/reference.h"

namespace ren {
namespace {

enum Input : size_t { kLearningRate, kMomentum, kWeightDecay, kOverflow, kTrust };

std::vector<TensorType> infer_sgd(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 3, 4);
  return {};
}

std::vector<TensorType> infer_lars(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 3, 5);
  if (!has_input(node, kTrust)) fail(StatusCode::internal, "range_lars needs the trust coefficient");
  return {};
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

double trust_ratio(const ReferenceCall& call, const Parameter& parameter, const std::vector<double>& w,
                   const std::vector<double>& g, double decay) {
  if (call.node.op != Op::range_lars || !parameter.lars) return 1;
  const double norm_w = norm_of(w), norm_g = norm_of(g);
  if (norm_w == 0 || norm_g == 0) return 1;
  return scalar_or(call, kTrust, 0) * norm_w / (norm_g + decay * norm_w + 1e-9);
}

double rounded_copy(double value, DType type) {
  const float f = float(value);
  return type == DType::f16 ? from_f16(to_f16(f)) : type == DType::bf16 ? from_bf16(to_bf16(f)) : f;
}

void update(const ReferenceCall& call, int p) {
  const auto& a = call.node.as<OptimizerAttributes>();
  const Parameter& parameter = call.graph.parameters[size_t(p)];
  if (!parameter.trainable) return;
  auto &w = range_slot(call, Region::W, p), &g = range_slot(call, Region::G, p);
  const double decay = scalar_or(call, kWeightDecay, 0) * double(parameter.weight_decay_multiplier);
  const double momentum = scalar_or(call, kMomentum, 0);
  const double rate = scalar_or(call, kLearningRate, 0) * double(parameter.learning_rate_multiplier);
  const double ratio = trust_ratio(call, parameter, w, g, decay);
  std::vector<double>* m = a.use_momentum ? &range_slot(call, Region::M, p) : nullptr;
  for (size_t i = 0; i < w.size(); ++i) {
    const double gradient = ratio * (g[i] + decay * w[i]);
    double step = gradient;
    if (m) {
      (*m)[i] = momentum * (*m)[i] + gradient;
      step = a.nesterov ? gradient + momentum * (*m)[i] : (*m)[i];
    }
    w[i] -= rate * step;
    if (a.has_copy) range_slot(call, Region::A, p)[i] = rounded_copy(w[i], a.copy_type);
  }
}

void reference(const ReferenceCall& call) {
  if (scalar_or(call, kOverflow, 0) != 0) return;
  for (int p = 0; p < parameters_of(call); ++p) update(call, p);
}

}  // namespace

const OpDefinition& range_sgd_definition() {
  static const OpDefinition definition{"range_sgd", infer_sgd, reference, nullptr};
  return definition;
}

const OpDefinition& range_lars_definition() {
  static const OpDefinition definition{"range_lars", infer_lars, reference, nullptr};
  return definition;
}

}  // namespace ren
