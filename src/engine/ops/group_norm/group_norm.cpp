// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/group_norm/group_norm.h"

#include <cmath>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

enum Input : size_t { kX, kScale, kBias };

TensorType channel_type(const Node& node, const Shape& x) {
  const int64_t groups = node.as<GroupNormAttributes>().groups;
  if (groups < 1 || x.c % groups != 0)
    fail(StatusCode::invalid_model, "{} channels cannot be divided into {} groups", x.c, groups);
  return {{x.n, 1, 1, x.c}, DType::f32};
}

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 3);
  check_float("the input", inputs[kX]);
  if (has_input(node, kScale)) check_channel_vector("the scale", inputs[kScale], inputs[kX].shape.c);
  if (has_input(node, kBias)) check_channel_vector("the bias", inputs[kBias], inputs[kX].shape.c);
  const TensorType vector = channel_type(node, inputs[kX].shape);
  return {inputs[kX], vector, vector};
}

std::vector<TensorType> infer_statistics(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  const TensorType vector = channel_type(node, inputs[0].shape);
  return {vector, vector};
}

std::vector<TensorType> infer_sum(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  check_same_shape("the input", inputs[0].shape, channel_type(node, inputs[0].shape).shape);
  return {{inputs[0].shape, DType::f32}};
}

// Calls body(element) for all elements of one sample's group.
template <typename Body>
void for_each_in_group(const Shape& x, int64_t groups, int64_t n, int64_t g, const Body& body) {
  const int64_t per_group = x.c / groups;
  for (int64_t h = 0; h < x.h; ++h)
    for (int64_t w = 0; w < x.w; ++w)
      for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) body(index_of(x, n, h, w, c), c);
}

// One sample's group: mean and inverse standard deviation.
std::pair<double, double> statistics_of(const GroupNormAttributes& a, const Shape& s,
                                        const std::vector<double>& x, int64_t n, int64_t g) {
  const double count = double(s.h * s.w * (s.c / a.groups));
  double sum = 0, squares = 0;
  for_each_in_group(s, a.groups, n, g, [&](size_t e, int64_t) { sum += x[e]; });
  const double mean = sum / count;
  for_each_in_group(s, a.groups, n, g, [&](size_t e, int64_t) { squares += (x[e] - mean) * (x[e] - mean); });
  return {mean, 1 / std::sqrt(squares / count + double(a.epsilon))};
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<GroupNormAttributes>();
  const Shape& s = call.input_shape(kX);
  const auto& x = *call.inputs[kX];
  const auto *scale = optional_input(call, kScale), *bias = optional_input(call, kBias);
  auto *out_mean = wanted_output(call, 1), *out_inverse = wanted_output(call, 2);
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t g = 0; g < a.groups; ++g) {
      const auto [mean, inverse] = statistics_of(a, s, x, n, g);
      for_each_in_group(s, a.groups, n, g, [&, m = mean, i = inverse](size_t e, int64_t c) {
        (*call.outputs[0])[e] =
            (x[e] - m) * i * (scale ? (*scale)[size_t(c)] : 1) + (bias ? (*bias)[size_t(c)] : 0);
        if (out_mean) (*out_mean)[size_t(n * s.c + c)] = m;
        if (out_inverse) (*out_inverse)[size_t(n * s.c + c)] = i;
      });
    }
}

void reference_statistics(const ReferenceCall& call) {
  const auto& a = call.node.as<GroupNormAttributes>();
  const Shape& s = call.input_shape(0);
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t c = 0; c < s.c; ++c) {
      const auto [mean, inverse] = statistics_of(a, s, *call.inputs[0], n, c / (s.c / a.groups));
      (*call.outputs[0])[size_t(n * s.c + c)] = mean;
      (*call.outputs[1])[size_t(n * s.c + c)] = inverse;
    }
}

void reference_sum(const ReferenceCall& call) {
  const int64_t groups = call.node.as<GroupNormAttributes>().groups;
  const Shape& s = call.input_shape(0);
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for_each_in_group(s, groups, n, g, [&](size_t e, int64_t) { sum += (*call.inputs[0])[e]; });
      for_each_in_group(s, groups, n, g, [&](size_t e, int64_t) { (*call.outputs[0])[e] = sum; });
    }
}

// A [N,1,1,C] value summed over the samples.
TensorId emit_batch_sum(GradientContext& context, const char* what, TensorId value) {
  ExpressionBuilder b;
  const Value v = b.input(0);
  return emit_sum(context, context.node().name + what, b.finish({v}, 1), {value}, kChannels)[0];
}

// The mean over a group of a channel's sum times its scale.
TensorId emit_group_mean(GradientContext& context, const char* what, TensorId channel_sum) {
  const Node& node = context.node();
  const auto& a = node.as<GroupNormAttributes>();
  const Shape& x = context.graph().at(node.inputs[kX]).shape;
  ExpressionBuilder b;
  Value value = b.mul(b.input(0), b.constant(1.0 / double(x.h * x.w * (x.c / a.groups))));
  std::vector<TensorId> operands{channel_sum};
  if (has_input(node, kScale)) {
    value = b.mul(value, b.input(1));
    operands.push_back(node.inputs[kScale]);
  }
  const int count = int(operands.size());
  const TensorId scaled =
      emit_pointwise(context, node.name + what, b.finish({value}, count), std::move(operands), {})[0];
  return emit(context.builder(), Op::group_sum, node.name + what, {scaled}, node.attributes)[0];
}

// With g = dy * scale: dx = inverse * (g - mean(g) - xhat * mean(g * xhat)), means over a group.
void emit_input_gradient(GradientContext& context, TensorId dy, const std::vector<TensorId>& sums) {
  const Node& node = context.node();
  const TensorId x = node.inputs[kX];
  const TensorId mean = emit_group_mean(context, ".mean", sums[0]);
  const TensorId mean_xhat = emit_group_mean(context, ".mean_xhat", sums[1]);
  ExpressionBuilder b;
  const Value inverse = b.input(3), xhat = b.mul(b.sub(b.input(1), b.input(2)), inverse);
  std::vector<TensorId> operands{dy, x, node.outputs[1], node.outputs[2], mean, mean_xhat};
  Value g = b.input(0);
  if (has_input(node, kScale)) {
    g = b.mul(g, b.input(6));
    operands.push_back(node.inputs[kScale]);
  }
  const Value centred = b.sub(b.sub(g, b.input(4)), b.mul(xhat, b.input(5)));
  const int count = int(operands.size());
  context.set_gradient(
      kX, emit_pointwise(context, node.name + ".input_gradient", b.finish({b.mul(centred, inverse)}, count),
                         std::move(operands), {context.graph().at(x).dtype})[0]);
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  const Node& node = context.node();
  ExpressionBuilder b;
  const Value g = b.input(0), xhat = b.mul(b.sub(b.input(1), b.input(2)), b.input(3));
  const auto sums = emit_sum(context, node.name + ".sums", b.finish({g, b.mul(g, xhat)}, 4),
                             {dy, node.inputs[kX], node.outputs[1], node.outputs[2]}, kSampleChannels);
  if (is_wanted(context, kScale))
    context.set_gradient(kScale, emit_batch_sum(context, ".scale_gradient", sums[1]));
  if (is_wanted(context, kBias))
    context.set_gradient(kBias, emit_batch_sum(context, ".bias_gradient", sums[0]));
  if (is_wanted(context, kX)) emit_input_gradient(context, dy, sums);
}

}  // namespace

std::string GroupNormAttributes::text() const { return fmt::format("groups={} epsilon={}", groups, epsilon); }

const OpDefinition& group_norm_definition() {
  static const OpDefinition definition{"group_norm", infer, reference, gradient};
  return definition;
}

const OpDefinition& group_norm_statistics_definition() {
  static const OpDefinition definition{"group_norm_statistics", infer_statistics, reference_statistics,
                                       nullptr};
  return definition;
}

const OpDefinition& group_sum_definition() {
  static const OpDefinition definition{"group_sum", infer_sum, reference_sum, nullptr};
  return definition;
}

}  // namespace ren
