// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/batch_norm/batch_norm.h"

#include <cmath>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

enum Input : size_t { kX, kScale, kBias, kMean, kVariance, kShift };

Shape channels_of(const Shape& x) { return {1, 1, 1, x.c}; }

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 6);
  check_float("the input", inputs[kX]);
  const char* const names[] = {
      "the input", "the scale", "the bias", "the running mean", "the running variance", "the shift"};
  for (size_t i = kScale; i < inputs.size(); ++i)
    if (has_input(node, i)) check_channel_vector(names[i], inputs[i], inputs[kX].shape.c);
  if (has_input(node, kMean) != has_input(node, kVariance))
    fail(StatusCode::invalid_model, "running mean and running variance must both be there or both be absent");
  if (!node.as<BatchNormAttributes>().training && !has_input(node, kMean))
    fail(StatusCode::invalid_model, "normalising by running statistics needs a running mean and variance");
  const TensorType vector{channels_of(inputs[kX].shape), DType::f32};
  return {inputs[kX], vector, vector};
}

// Lowering makes this node at the true batch size, so it, and not the composite, refuses.
std::vector<TensorType> infer_statistics(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 6);
  check_float("the input", inputs[0]);
  const Shape& x = inputs[0].shape;
  if (x.pixels() == 1)
    fail(StatusCode::unsupported,
         "Expected more than 1 value per channel when training, got input size {}: the variance of one value "
         "is zero; "
         "use a larger batch (or drop the last, smaller one), or freeze this normalisation",
         to_string(Shape{x.n, x.c, x.h, x.w}));  // PyTorch's text, with its order of axes
  for (size_t i = 1; i < inputs.size(); ++i)
    if (has_input(node, i)) check_channel_vector("a running statistic", inputs[i], x.c);
  if (has_input(node, 1) != has_input(node, 2))
    fail(StatusCode::invalid_model, "running mean and running variance must both be there or both be absent");
  const TensorType vector{channels_of(x), DType::f32};
  return {vector, vector};
}

// Mean and biased variance of one channel.
struct Moments {
  double mean, variance;
};

Moments moments_of(const std::vector<double>& x, int64_t channels, int64_t channel) {
  const int64_t rows = int64_t(x.size()) / channels;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < rows; ++i) sum += x[size_t(i * channels + channel)];
  const double mean = sum / double(rows);
  for (int64_t i = 0; i < rows; ++i) squares += std::pow(x[size_t(i * channels + channel)] - mean, 2);
  return {mean, squares / double(rows)};
}

void move_running(const BatchNormAttributes& a, const Moments& m, double shift, double count, double& mean,
                  double& variance) {
  if (!std::isfinite(m.mean) || !std::isfinite(m.variance)) return;
  const double keep = a.keep;
  mean = keep * mean + (1 - keep) * (m.mean + shift);
  variance = keep * variance + (1 - keep) * m.variance * count / (count - 1);
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<BatchNormAttributes>();
  const auto& x = *call.inputs[kX];
  const int64_t channels = call.input_shape(kX).c;
  const auto *scale = optional_input(call, kScale), *bias = optional_input(call, kBias);
  auto *running_mean = updated_input(call, kMean), *running_variance = updated_input(call, kVariance);
  auto *out_mean = wanted_output(call, 1), *out_inverse = wanted_output(call, 2);
  const auto* shift = optional_input(call, kShift);
  for (int64_t c = 0; c < channels; ++c) {
    const size_t i = size_t(c);
    const Moments m =
        a.training ? moments_of(x, channels, c) : Moments{(*running_mean)[i], (*running_variance)[i]};
    const double inverse = 1 / std::sqrt(m.variance + double(a.epsilon));
    for (size_t e = i; e < x.size(); e += size_t(channels))
      (*call.outputs[0])[e] = (x[e] - m.mean) * inverse * (scale ? (*scale)[i] : 1) + (bias ? (*bias)[i] : 0);
    if (out_mean) (*out_mean)[i] = m.mean;
    if (out_inverse) (*out_inverse)[i] = inverse;
    if (a.training && running_mean)
      move_running(a, m, shift ? (*shift)[i] : 0, double(call.input_shape(kX).pixels()), (*running_mean)[i],
                   (*running_variance)[i]);
  }
}

void reference_statistics(const ReferenceCall& call) {
  const auto& a = call.node.as<BatchNormAttributes>();
  const int64_t channels = call.input_shape(0).c;
  auto *running_mean = updated_input(call, 1), *running_variance = updated_input(call, 2);
  const auto* shift = optional_input(call, 3);
  for (int64_t c = 0; c < channels; ++c) {
    const size_t i = size_t(c);
    const Moments m = moments_of(*call.inputs[0], channels, c);
    (*call.outputs[0])[i] = m.mean;
    (*call.outputs[1])[i] = 1 / std::sqrt(m.variance + double(a.epsilon));
    if (running_mean)
      move_running(a, m, shift ? (*shift)[i] : 0, double(call.input_shape(0).pixels()), (*running_mean)[i],
                   (*running_variance)[i]);
  }
}

// Mean and inverse standard deviation as the two last operands of an expression: what the
// forward pass left while training, else taken from the running statistics.
struct Statistics {
  std::vector<TensorId> operands;
  bool frozen;
  double epsilon;

  Value mean(ExpressionBuilder& b, int first) const { return b.input(first); }
  Value inverse(ExpressionBuilder& b, int first) const {
    const Value v = b.input(first + 1);
    return frozen ? b.apply(Prim::rsqrt, b.add(v, b.constant(epsilon))) : v;
  }
};

Statistics statistics_of(const Node& node) {
  const auto& a = node.as<BatchNormAttributes>();
  if (a.training) return {{node.outputs[1], node.outputs[2]}, false, a.epsilon};
  return {{node.inputs[kMean], node.inputs[kVariance]}, true, a.epsilon};
}

// sum(dy) and sum(dy * xhat) in one pass over dy and x.
std::vector<TensorId> emit_channel_sums(GradientContext& context, TensorId dy, const Statistics& statistics) {
  ExpressionBuilder b;
  const Value g = b.input(0), x = b.input(1);
  const Value xhat = b.mul(b.sub(x, statistics.mean(b, 2)), statistics.inverse(b, 2));
  return emit_sum(context, context.node().name + ".sums", b.finish({g, b.mul(g, xhat)}, 4),
                  {dy, context.node().inputs[kX], statistics.operands[0], statistics.operands[1]}, kChannels);
}

// dx = scale * inverse * dy: the statistics are constants.
TensorId emit_frozen_input_gradient(GradientContext& context, TensorId dy, const Statistics& statistics) {
  const Node& node = context.node();
  ExpressionBuilder b;
  const Value variance = b.input(1);
  Value value = b.mul(b.input(0), b.apply(Prim::rsqrt, b.add(variance, b.constant(statistics.epsilon))));
  std::vector<TensorId> operands{dy, statistics.operands[1]};
  if (has_input(node, kScale)) {
    value = b.mul(value, b.input(2));
    operands.push_back(node.inputs[kScale]);
  }
  const int count = int(operands.size());
  return emit_pointwise(context, node.name + ".input_gradient", b.finish({value}, count), std::move(operands),
                        {context.graph().at(node.inputs[kX]).dtype})[0];
}

// dx = scale * inverse * (dy - sum(dy) / M - xhat * sum(dy * xhat) / M)
TensorId emit_input_gradient(GradientContext& context, TensorId dy, const Statistics& statistics,
                             const std::vector<TensorId>& sums) {
  const Node& node = context.node();
  const TensorId x = node.inputs[kX];
  ExpressionBuilder b;
  const Value inverse = b.input(3);
  const Value xhat = b.mul(b.sub(b.input(1), b.input(2)), inverse);
  const Value share = b.constant(1.0 / double(context.graph().at(x).shape.pixels()));
  const Value centred =
      b.sub(b.sub(b.input(0), b.mul(b.input(4), share)), b.mul(xhat, b.mul(b.input(5), share)));
  Value value = b.mul(centred, inverse);
  std::vector<TensorId> operands{dy, x, statistics.operands[0], statistics.operands[1], sums[0], sums[1]};
  if (has_input(node, kScale)) {
    value = b.mul(value, b.input(6));
    operands.push_back(node.inputs[kScale]);
  }
  const int count = int(operands.size());
  return emit_pointwise(context, node.name + ".input_gradient", b.finish({value}, count), std::move(operands),
                        {context.graph().at(x).dtype})[0];
}

TensorId emit_zero(GradientContext& context, TensorId like) {
  ExpressionBuilder b;
  return emit_pointwise(context, context.node().name + ".shift_gradient",
                        b.finish({b.mul(b.input(0), b.constant(0))}, 1), {like}, {DType::f32})[0];
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  const bool training = context.node().as<BatchNormAttributes>().training;
  const bool wants_x = is_wanted(context, kX), wants_scale = is_wanted(context, kScale);
  const bool wants_bias = is_wanted(context, kBias);
  const Statistics statistics = statistics_of(context.node());
  std::vector<TensorId> sums;
  if (wants_scale || (training && wants_x)) {
    sums = emit_channel_sums(context, dy, statistics);
  } else if (wants_bias) {
    sums = {emit_bias_gradient(context, dy)};
  }
  if (wants_scale) context.set_gradient(kScale, sums[1]);
  if (wants_bias) context.set_gradient(kBias, sums[0]);
  if (is_wanted(context, kShift))
    context.set_gradient(kShift, emit_zero(context, context.node().inputs[kShift]));
  if (wants_x)
    context.set_gradient(kX, training ? emit_input_gradient(context, dy, statistics, sums)
                                      : emit_frozen_input_gradient(context, dy, statistics));
}

}  // namespace

std::string BatchNormAttributes::text() const {
  return fmt::format("epsilon={} keep={}{}", epsilon, keep, training ? "" : " frozen");
}

const OpDefinition& batch_norm_definition() {
  static const OpDefinition definition{"batch_norm", infer, reference, gradient};
  return definition;
}

const OpDefinition& batch_norm_statistics_definition() {
  static const OpDefinition definition{"batch_norm_statistics", infer_statistics, reference_statistics,
                                       nullptr};
  return definition;
}

}  // namespace ren
