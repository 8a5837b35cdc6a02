// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/layer_norm/layer_norm.h"

#include <cmath>

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

enum Input : size_t { kX, kScale, kBias };

TensorType row_type(const Shape& x) { return {{x.n, x.h, x.w, 1}, DType::f32}; }

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 3);
  check_float("the input", inputs[kX]);
  if (has_input(node, kScale)) check_channel_vector("the scale", inputs[kScale], inputs[kX].shape.c);
  if (has_input(node, kBias)) check_channel_vector("the bias", inputs[kBias], inputs[kX].shape.c);
  const TensorType row = row_type(inputs[kX].shape);
  return {inputs[kX], row, row};
}

std::vector<TensorType> infer_statistics(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  const TensorType row = row_type(inputs[0].shape);
  return {row, row};
}

// Mean and inverse standard deviation of one row.
std::pair<double, double> statistics_of(const double* x, int64_t channels, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t c = 0; c < channels; ++c) sum += x[c];
  const double mean = sum / double(channels);
  for (int64_t c = 0; c < channels; ++c) squares += (x[c] - mean) * (x[c] - mean);
  return {mean, 1 / std::sqrt(squares / double(channels) + epsilon)};
}

void reference(const ReferenceCall& call) {
  const Shape& shape = call.input_shape(kX);
  const auto *scale = optional_input(call, kScale), *bias = optional_input(call, kBias);
  auto *out_mean = wanted_output(call, 1), *out_inverse = wanted_output(call, 2);
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* x = call.inputs[kX]->data() + i * shape.c;
    const auto [mean, inverse] = statistics_of(x, shape.c, call.node.as<LayerNormAttributes>().epsilon);
    for (int64_t c = 0; c < shape.c; ++c)
      (*call.outputs[0])[size_t(i * shape.c + c)] =
          (x[c] - mean) * inverse * (scale ? (*scale)[size_t(c)] : 1) + (bias ? (*bias)[size_t(c)] : 0);
    if (out_mean) (*out_mean)[size_t(i)] = mean;
    if (out_inverse) (*out_inverse)[size_t(i)] = inverse;
  }
}

void reference_statistics(const ReferenceCall& call) {
  const Shape& shape = call.input_shape(0);
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const double* x = call.inputs[0]->data() + i * shape.c;
    const auto [mean, inverse] = statistics_of(x, shape.c, call.node.as<LayerNormAttributes>().epsilon);
    (*call.outputs[0])[size_t(i)] = mean;
    (*call.outputs[1])[size_t(i)] = inverse;
  }
}

// sum(dy) and sum(dy * xhat) over the rows: the gradients of bias and scale.
void emit_vector_gradients(GradientContext& context, TensorId dy) {
  const Node& node = context.node();
  ExpressionBuilder b;
  const Value g = b.input(0), xhat = b.mul(b.sub(b.input(1), b.input(2)), b.input(3));
  if (!is_wanted(context, kScale)) {
    context.set_gradient(kBias, emit_bias_gradient(context, dy));
    return;
  }
  const auto sums = emit_sum(context, node.name + ".sums", b.finish({g, b.mul(g, xhat)}, 4),
                             {dy, node.inputs[kX], node.outputs[1], node.outputs[2]}, kChannels);
  if (is_wanted(context, kBias)) context.set_gradient(kBias, sums[0]);
  context.set_gradient(kScale, sums[1]);
}

// With g = dy * scale: dx = inverse * (g - mean(g) - xhat * mean(g * xhat)), means over a row.
void emit_input_gradient(GradientContext& context, TensorId dy) {
  const Node& node = context.node();
  const TensorId x = node.inputs[kX];
  const bool scaled = has_input(node, kScale);
  std::vector<TensorId> operands{dy, x, node.outputs[1], node.outputs[2]};
  if (scaled) operands.push_back(node.inputs[kScale]);
  const int shared = int(operands.size());
  const auto scaled_gradient = [&](ExpressionBuilder& b) {
    return scaled ? b.mul(b.input(0), b.input(4)) : b.input(0);
  };
  const auto normalised = [](ExpressionBuilder& b) {
    return b.mul(b.sub(b.input(1), b.input(2)), b.input(3));
  };

  ExpressionBuilder r;
  const Value g = scaled_gradient(r), share = r.constant(1.0 / double(context.graph().at(x).shape.c));
  const Expression row_means = r.finish({r.mul(g, share), r.mul(r.mul(g, normalised(r)), share)}, shared);
  const auto means = emit_sum(context, node.name + ".row_means", row_means, operands, kRows);

  ExpressionBuilder b;
  const Value centred =
      b.sub(b.sub(scaled_gradient(b), b.input(shared)), b.mul(normalised(b), b.input(shared + 1)));
  operands.push_back(means[0]);
  operands.push_back(means[1]);
  context.set_gradient(kX, emit_pointwise(context, node.name + ".input_gradient",
                                          b.finish({b.mul(centred, b.input(3))}, shared + 2),
                                          std::move(operands), {context.graph().at(x).dtype})[0]);
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  if (is_wanted(context, kScale) || is_wanted(context, kBias)) emit_vector_gradients(context, dy);
  if (is_wanted(context, kX)) emit_input_gradient(context, dy);
}

}  // namespace

std::string LayerNormAttributes::text() const { return fmt::format("epsilon={}", epsilon); }

const OpDefinition& layer_norm_definition() {
  static const OpDefinition definition{"layer_norm", infer, reference, gradient};
  return definition;
}

const OpDefinition& layer_norm_statistics_definition() {
  static const OpDefinition definition{"layer_norm_statistics", infer_statistics, reference_statistics,
                                       nullptr};
  return definition;
}

}  // namespace ren
