// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/batch_norm/from_sums.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  const auto& layers = node.as<BatchNormFromSumsAttributes>().layers;
  if (inputs.size() != layers.size() * LayerInput::kCount)
    fail(StatusCode::invalid_model, "{} layers have {} inputs, not {}", layers.size(),
         layers.size() * LayerInput::kCount, inputs.size());
  const char* const names[] = {"the sums", "the sums of squares", "the running mean", "the running variance",
                               "the shift"};
  std::vector<TensorType> types;
  for (size_t i = 0; i < layers.size(); ++i) {
    const size_t first = i * LayerInput::kCount;
    if (layers[i].rows < 2)
      fail(StatusCode::unsupported, "a training normalisation needs more than one value a channel");
    if (!has_input(node, first) || !has_input(node, first + LayerInput::kSquares))
      fail(StatusCode::invalid_model, "layer {} has no sums", i);
    if (has_input(node, first + LayerInput::kMean) != has_input(node, first + LayerInput::kVariance))
      fail(StatusCode::invalid_model,
           "running mean and running variance must both be there or both be absent");
    const TensorType vector{{1, 1, 1, inputs[first].shape.c}, DType::f32};
    for (size_t k = 0; k < LayerInput::kCount; ++k)
      if (has_input(node, first + k)) check_channel_vector(names[k], inputs[first + k], vector.shape.c);
    types.insert(types.end(), LayerOutput::kCount, vector);
  }
  return types;
}

void reference_layer(const ReferenceCall& call, size_t layer) {
  const auto& a = call.node.as<BatchNormFromSumsAttributes>().layers[layer];
  const size_t in = layer * LayerInput::kCount, out = layer * LayerOutput::kCount;
  const auto &sums = *call.inputs[in], &squares = *call.inputs[in + LayerInput::kSquares];
  const auto* shift = optional_input(call, in + LayerInput::kShift);
  auto *running_mean = updated_input(call, in + LayerInput::kMean),
       *running_variance = updated_input(call, in + LayerInput::kVariance);
  auto *means = wanted_output(call, out), *inverses = wanted_output(call, out + LayerOutput::kInverse);
  const double rows = double(a.rows), keep = a.keep;
  for (size_t c = 0; c < sums.size(); ++c) {
    const double mean = sums[c] / rows, deviations = std::max(squares[c] - sums[c] * mean, 0.0);
    if (means) (*means)[c] = mean;
    if (inverses) (*inverses)[c] = 1 / std::sqrt(deviations / rows + double(a.epsilon));
    if (!running_mean || !std::isfinite(mean) || !std::isfinite(squares[c])) continue;
    (*running_mean)[c] = keep * (*running_mean)[c] + (1 - keep) * (mean + (shift ? (*shift)[c] : 0));
    (*running_variance)[c] = keep * (*running_variance)[c] + (1 - keep) * deviations / (rows - 1);
  }
}

void reference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.node.as<BatchNormFromSumsAttributes>().layers.size(); ++i)
    reference_layer(call, i);
}

}  // namespace

std::string BatchNormFromSumsAttributes::text() const {
  std::string text;
  for (const Layer& l : layers)
    text += fmt::format("{}rows={} epsilon={} keep={}", text.empty() ? "" : "; ", l.rows, l.epsilon, l.keep);
  return text;
}

Expression statistics_expression(int64_t rows, float epsilon) {
  ExpressionBuilder e;
  const Value sum = e.input(0), squares = e.input(1), share = e.constant(1.0 / double(rows));
  const Value mean = e.mul(sum, share);
  const Value deviations = e.maximum(e.sub(squares, e.mul(sum, mean)), e.constant(0));
  return e.finish({mean, e.apply(Prim::rsqrt, e.add(e.mul(deviations, share), e.constant(epsilon)))}, 2);
}

const OpDefinition& batch_norm_from_sums_definition() {
  static const OpDefinition definition{"batch_norm_from_sums", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
