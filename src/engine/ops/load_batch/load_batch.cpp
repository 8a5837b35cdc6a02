// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/load_batch/load_batch.h"

#include <algorithm>
#include <cstring>

#include "engine/ir/batch_mix.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

enum Input : size_t { kRecord, kLabels, kImages, kPerSlot, kStep = 2 * kPerSlot };

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  const auto& a = node.as<LoadBatchAttributes>();
  if (inputs.size() != kStep + 1)
    fail(StatusCode::invalid_model, "load_batch takes {} inputs and got {}", size_t(kStep) + 1,
         inputs.size());
  for (size_t slot = 0; slot < 2; ++slot) {
    const TensorType &record = inputs[slot * kPerSlot + kRecord], &images = inputs[slot * kPerSlot + kImages];
    if (record != TensorType{{1, 1, 1, kStepRecordBytes}, DType::u8})
      fail(StatusCode::invalid_model, "the step record must be {} bytes", kStepRecordBytes);
    if (images.dtype != DType::u8 && images.dtype != DType::f32)
      fail(StatusCode::unsupported, "images of type {}; u8 or f32 is needed", name_of(images.dtype));
    if (images != inputs[kImages]) fail(StatusCode::invalid_model, "the image slots differ");
  }
  const bool labels = has_input(node, kLabels);
  if (labels != has_input(node, kPerSlot + kLabels) ||
      (labels && inputs[kLabels] != inputs[kPerSlot + kLabels]))
    fail(StatusCode::invalid_model, "the label slots differ");
  if (labels && inputs[kLabels].dtype != DType::i32)
    fail(StatusCode::unsupported, "labels of type {}; i32 is needed", name_of(inputs[kLabels].dtype));
  const Shape& shape = inputs[kImages].shape;
  if (int64_t(a.mean.size()) != shape.c || int64_t(a.scale.size()) != shape.c)
    fail(StatusCode::invalid_argument, "{} means and {} scales for images of {} channels", a.mean.size(),
         a.scale.size(), shape.c);
  if (a.channels != 0 && a.channels < shape.c)
    fail(StatusCode::invalid_argument, "{} channels cannot hold images of {}", a.channels, shape.c);
  Shape padded = shape;
  padded.c = std::max(shape.c, a.channels);
  std::vector<TensorType> outputs{{padded, a.image_type},
                                  labels ? inputs[kLabels] : TensorType{{shape.n, 1, 1, 1}, DType::i32}};
  for (const ScalarInfo& info : kScalars)
    if (info.source == ScalarSource::record) outputs.push_back({{1, 1, 1, info.components}, info.type});
  if (a.mixes && !labels) fail(StatusCode::invalid_model, "images can only be mixed with their labels");
  if (a.mixes) outputs.insert(outputs.end(), {inputs[kLabels], {{1, 1, 1, 1}, DType::f32}});
  return outputs;
}

// A record arrives as one double a byte.
double record_value(const std::vector<double>& record, size_t offset, DType type) {
  unsigned char bytes[4];
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(record[offset + i]);
  if (type == DType::i32) {
    int32_t value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  float value;
  std::memcpy(&value, bytes, 4);
  return value;
}

BatchMix mix_of(const std::vector<double>& record) {
  unsigned char bytes[sizeof(BatchMix)];
  for (size_t i = 0; i < sizeof bytes; ++i)
    bytes[i] = static_cast<unsigned char>(record[size_t(kMixOffset) + i]);
  BatchMix mix;
  std::memcpy(&mix, bytes, sizeof mix);
  return mix;
}

// Element i of a batch that lies as `shape` says, and the one at its place in the sample before.
size_t partner_of(size_t i, const Shape& shape) {
  const auto sample = size_t(shape.elements() / shape.n), all = size_t(shape.elements());
  return (i + all - sample) % all;
}

void reference_mix(const ReferenceCall& call, const BatchMix& mix) {
  auto* out = wanted_output(call, 0);
  if (out == nullptr) return;
  const Shape& shape = call.output_shape(0);
  const std::vector<double> own = *out;
  for (size_t i = 0; i < own.size(); ++i) {
    const int64_t pixel = int64_t(i) / shape.c, x = pixel % shape.w, y = pixel / shape.w % shape.h;
    if (y < mix.top || y >= mix.bottom || x < mix.left || x >= mix.right) continue;
    const double partner = own[partner_of(i, shape)], share = double(mix.inside);
    if (share == 1) continue;  // where one of them has no share, its value may be anything
    (*out)[i] = share == 0 ? partner : share * own[i] + (1 - share) * partner;
  }
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<LoadBatchAttributes>();
  const size_t slot = (int64_t((*call.inputs[kStep])[0]) & 1) * kPerSlot, channels = a.mean.size();
  const auto& images = *call.inputs[slot + kImages];
  if (auto* out = wanted_output(call, 0))
    for (size_t i = 0, padded = size_t(call.output_shape(0).c); i < images.size(); ++i)
      (*out)[i / channels * padded + i % channels] =
          (images[i] - double(a.mean[i % channels])) * double(a.scale[i % channels]);
  if (auto* out = wanted_output(call, 1)) *out = *call.inputs[slot + kLabels];
  size_t output = 2, offset = 0;
  for (const ScalarInfo& info : kScalars) {
    if (info.source != ScalarSource::record) continue;
    auto* out = wanted_output(call, output++);
    for (int i = 0; i < info.components; ++i, offset += 4)
      if (out) (*out)[size_t(i)] = record_value(*call.inputs[slot + kRecord], offset, info.type);
  }
  if (!a.mixes) return;
  const BatchMix mix = mix_of(*call.inputs[slot + kRecord]);
  reference_mix(call, mix);
  const auto& labels = *call.inputs[slot + kLabels];
  if (auto* out = wanted_output(call, output++))
    for (size_t i = 0; i < labels.size(); ++i)
      (*out)[i] = labels[partner_of(i, call.input_shape(slot + kLabels))];
  if (auto* out = wanted_output(call, output)) (*out)[0] = double(mix.own);
}

}  // namespace

std::string LoadBatchAttributes::text() const {
  std::string out =
      fmt::format("type={}{}{} mean=", name_of(image_type),
                  channels == 0 ? "" : fmt::format(" channels={}", channels), mixes ? " mixes" : "");
  for (size_t i = 0; i < mean.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", mean[i]);
  out += " scale=";
  for (size_t i = 0; i < scale.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", scale[i]);
  return out;
}

const OpDefinition& load_batch_definition() {
  static const OpDefinition definition{"load_batch", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
