// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/reference.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/ops/op.h"
#include "engine/range/range.h"

namespace ren {

ReferenceRun::ReferenceRun(const Graph& graph) : graph_(graph) {
  values_.resize(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].alias_of == kNoTensor)
      values_[i].assign(size_t(graph.tensors[i].shape.elements()), 0.0);
  for (const Parameter& p : graph.parameters) {
    moments_.emplace_back(size_t(p.shape.elements()), 0.0);
    averages_.emplace_back(size_t(p.shape.elements()), 0.0);
  }
}

std::vector<double>& ReferenceRun::value(TensorId id) { return values_[size_t(graph_.storage(id))]; }

std::vector<double>& ReferenceRun::family(int32_t parameter, Region region) {
  if (region == Region::W) return value(graph_.parameters[size_t(parameter)].value);
  if (region == Region::M) return moments_[size_t(parameter)];
  if (region == Region::E) return averages_[size_t(parameter)];
  for (size_t i = 0; i < graph_.tensors.size(); ++i)
    if (graph_.tensors[i].region == region && graph_.tensors[i].parameter == parameter)
      return value(TensorId(i));
  fail(StatusCode::internal, "parameter '{}' has no tensor in {}", graph_.parameters[size_t(parameter)].name,
       name_of(region));
}

void ReferenceRun::run() {
  for (const Node& node : graph_.nodes) run_node(node);
}

void ReferenceRun::run_node(const Node& node) {
  if (node.op == Op::view) return;
  if (node.phase == Phase::update) return run_range(node);
  ReferenceCall call{graph_, node, {}, {}};
  for (const TensorId id : node.inputs) call.inputs.push_back(id == kNoTensor ? nullptr : &value(id));
  for (const TensorId id : node.outputs) call.outputs.push_back(id == kNoTensor ? nullptr : &value(id));
  definition_of(node.op).reference(call);
}

void ReferenceRun::run_range(const Node& node) {
  switch (node.op) {
    case Op::range_sgd:
      return sgd(node);
    case Op::range_update_loss_scale:
      value(graph_.scalar(Scalar::step))[0] += 1;
      return;
    case Op::range_ema: {
      const double decay = scalar(Scalar::ema_decay);
      for (size_t p = 0; p < averages_.size(); ++p) {
        const std::vector<double>& w = family(int32_t(p), Region::W);
        for (size_t i = 0; i < w.size(); ++i) averages_[p][i] = decay * averages_[p][i] + (1 - decay) * w[i];
      }
      return;
    }
    default:
      fail(StatusCode::internal, "the reference has no {}", name_of(node.op));
  }
}

// torch.optim.SGD, written for one parameter after the other.
void ReferenceRun::sgd(const Node& node) {
  const auto& attributes = node.as<OptimizerAttributes>();
  const double momentum = scalar(Scalar::momentum);
  for (size_t p = 0; p < graph_.parameters.size(); ++p) {
    const Parameter& parameter = graph_.parameters[p];
    if (!parameter.trainable) continue;
    const double rate = scalar(Scalar::learning_rate) * parameter.learning_rate_multiplier;
    const double decay = scalar(Scalar::weight_decay) * parameter.weight_decay_multiplier;
    std::vector<double>& w = family(int32_t(p), Region::W);
    const std::vector<double>& g = family(int32_t(p), Region::G);
    std::vector<double>& m = moments_[p];
    for (size_t i = 0; i < w.size(); ++i) {
      const double gradient = g[i] + decay * w[i];
      double direction = gradient;
      if (attributes.use_momentum) {
        m[i] = momentum * m[i] + gradient;
        direction = attributes.nesterov ? gradient + momentum * m[i] : m[i];
      }
      w[i] -= rate * direction;
    }
  }
}

}  // namespace ren
