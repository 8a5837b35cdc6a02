// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "engine/base/half.h"
#include "engine/ir/batch_mix.h"
#include "engine/ops/load_batch/load_batch.h"
#include "engine/ops/support/kernel.h"

namespace ren {
namespace {

constexpr int64_t kBlock = 2048;  // values at a time

// Mean and scale repeated, so that one long loop without a channel index does a block.
struct Pattern {
  std::vector<float> mean, scale;
  int64_t length = 0;  // a multiple of the channels

  explicit Pattern(const LoadBatchAttributes& a) {
    const auto channels = int64_t(a.mean.size());
    const int64_t repeats = std::max<int64_t>(1, kBlock / channels);
    length = repeats * channels;
    for (int64_t i = 0; i < length; ++i) {
      mean.push_back(a.mean[size_t(i % channels)]);
      scale.push_back(a.scale[size_t(i % channels)]);
    }
  }
};

REN_CLONES void normalize_bytes(const uint8_t* x, const float* mean, const float* scale, int64_t count,
                                float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = (float(x[i]) - mean[i]) * scale[i];
}

REN_CLONES void normalize_floats(const float* x, const float* mean, const float* scale, int64_t count,
                                 float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean[i]) * scale[i];
}

// y = share * y + (1 - share) * partner
REN_CLONES void mix_in(const float* partner, float share, int64_t count, float* y) {
  const float other = 1.0f - share;
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] * share + partner[i] * other;
}

struct Slot {
  const std::byte *record, *labels, *images;
};

class LoadBatch final : public Kernel {
 public:
  explicit LoadBatch(const BindContext& context)
      : pattern_(context.node.as<LoadBatchAttributes>()),
        slots_{{context.inputs[0], context.inputs[1], context.inputs[2]},
               {context.inputs[3], context.inputs[4], context.inputs[5]}},
        step_(input_as<int32_t>(context, 6)),
        source_type_(input_tensor(context, 2).dtype),
        shape_(input_tensor(context, 2).shape),
        elements_(shape_.elements()),
        images_(context.outputs[0]),
        labels_(output_as<std::byte>(context, 1)) {
    if (images_) target_type_ = output_tensor(context, 0).dtype;
    if (labels_) label_bytes_ = size_t(output_tensor(context, 1).shape.elements()) * sizeof(int32_t);
    size_t output = 2;
    for (int i = 0; i < kScalarCount; ++i) {
      if (kScalars[i].source != ScalarSource::record) continue;
      if (auto* target = output_as<std::byte>(context, output++))
        scalars_.push_back({record_offset(Scalar(i)), 4 * kScalars[i].components, target});
    }
    mixes_ = context.node.as<LoadBatchAttributes>().mixes;
    if (!mixes_) return;
    partners_ = output_as<std::byte>(context, output);
    own_share_ = output_as<float>(context, output + 1);
    label_bytes_ = size_t(input_tensor(context, 1).shape.elements()) * sizeof(int32_t);
  }

  void launch() noexcept override {
    const Slot& slot = slots_[*step_ & 1];
    for (const ScalarCopy& s : scalars_) std::memcpy(s.target, slot.record + s.offset, size_t(s.bytes));
    if (labels_) std::memcpy(labels_, slot.labels, label_bytes_);
    if (mixes_) return launch_mixing(slot);
    if (!images_) return;
    const int64_t blocks = (elements_ + pattern_.length - 1) / pattern_.length;
    parallel_for(blocks, 8, [&](int, int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) convert(slot.images, block);
    });
  }

 private:
  struct ScalarCopy {
    int offset, bytes;
    std::byte* target;
  };

  // Elements at..at + count of the source, whose first has the place `phase` in the pattern.
  void normalize(const std::byte* images, int64_t at, int64_t phase, int64_t count, float* y) const noexcept {
    const float *mean = pattern_.mean.data() + phase, *scale = pattern_.scale.data() + phase;
    if (source_type_ == DType::u8) {
      normalize_bytes(reinterpret_cast<const uint8_t*>(images) + at, mean, scale, count, y);
    } else {
      normalize_floats(reinterpret_cast<const float*>(images) + at, mean, scale, count, y);
    }
  }

  void convert(const std::byte* images, int64_t block) noexcept {
    const int64_t first = block * pattern_.length, last = std::min(elements_, first + pattern_.length);
    alignas(64) float buffer[kBlock];
    for (int64_t at = first; at < last; at += kBlock) {
      const int64_t count = std::min(kBlock, last - at);
      float* y = target_type_ == DType::f32 ? reinterpret_cast<float*>(images_) + at : buffer;
      normalize(images, at, at - first, count, y);
      if (y == buffer) convert_from_f32(buffer, target_type_, images_ + at * 2, size_t(count));
    }
  }

  void launch_mixing(const Slot& slot) noexcept {
    BatchMix mix;
    std::memcpy(&mix, slot.record + kMixOffset, sizeof mix);
    if (own_share_) *own_share_ = mix.own;
    if (partners_) {  // the last sample's labels first
      const size_t last = label_bytes_ - label_bytes_ / size_t(shape_.n);
      std::memcpy(partners_, slot.labels + last, label_bytes_ - last);
      std::memcpy(partners_ + (label_bytes_ - last), slot.labels, last);
    }
    if (!images_) return;
    parallel_for(shape_.n * shape_.h, std::max<int64_t>(1, 8 * kBlock / (shape_.w * shape_.c)),
                 [&](int, int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) mix_row(slot.images, row, mix);
                 });
  }

  // A row of one sample: what is left of the box, what is in it, and what is right of it.
  void mix_row(const std::byte* images, int64_t row, const BatchMix& mix) noexcept {
    const int64_t first = row * shape_.w * shape_.c, y = row % shape_.h;
    const bool crosses = y >= mix.top && y < mix.bottom;
    const int64_t left = crosses ? mix.left * shape_.c : 0, right = crosses ? mix.right * shape_.c : 0;
    mix_run(images, first, left, 1.0f);
    mix_run(images, first + left, right - left, mix.inside);
    mix_run(images, first + right, shape_.w * shape_.c - right, 1.0f);
  }

  // Whole pixels, of which `share` is the sample's own. A share of 0 or 1 doesn't look at the other picture,
  // whose values may be anything.
  void mix_run(const std::byte* images, int64_t first, int64_t count, float share) noexcept {
    const int64_t sample = elements_ / shape_.n, partner = first < sample ? elements_ - sample : -sample;
    alignas(64) float buffer[kBlock], other[kBlock];
    for (int64_t done = 0; done < count;) {
      const int64_t phase = done % pattern_.length, at = first + done;
      const int64_t length = std::min({kBlock, count - done, pattern_.length - phase});
      float* y = target_type_ == DType::f32 ? reinterpret_cast<float*>(images_) + at : buffer;
      normalize(images, share == 0.0f ? at + partner : at, phase, length, y);
      if (share != 0.0f && share != 1.0f) {
        normalize(images, at + partner, phase, length, other);
        mix_in(other, share, length, y);
      }
      if (y == buffer) convert_from_f32(buffer, target_type_, images_ + at * 2, size_t(length));
      done += length;
    }
  }

  Pattern pattern_;
  Slot slots_[2];
  const int32_t* step_;
  DType source_type_, target_type_ = DType::f32;
  Shape shape_;  // of the source
  int64_t elements_;
  std::byte *images_, *labels_, *partners_ = nullptr;
  float* own_share_ = nullptr;
  bool mixes_ = false;
  size_t label_bytes_ = 0;
  std::vector<ScalarCopy> scalars_;
};

std::unique_ptr<Kernel> bind(const BindContext& context) { return std::make_unique<LoadBatch>(context); }

}  // namespace

const OpBackend& load_batch_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
