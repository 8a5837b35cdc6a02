// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "engine/base/half.h"
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
        elements_(input_tensor(context, 2).shape.elements()),
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
  }

  void launch() noexcept override {
    const Slot& slot = slots_[*step_ & 1];
    for (const ScalarCopy& s : scalars_) std::memcpy(s.target, slot.record + s.offset, size_t(s.bytes));
    if (labels_) std::memcpy(labels_, slot.labels, label_bytes_);
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

  void convert(const std::byte* images, int64_t block) noexcept {
    const int64_t first = block * pattern_.length, last = std::min(elements_, first + pattern_.length);
    alignas(64) float buffer[kBlock];
    for (int64_t at = first; at < last; at += kBlock) {
      const int64_t count = std::min(kBlock, last - at);
      float* y = target_type_ == DType::f32 ? reinterpret_cast<float*>(images_) + at : buffer;
      const float *mean = pattern_.mean.data() + (at - first), *scale = pattern_.scale.data() + (at - first);
      if (source_type_ == DType::u8) {
        normalize_bytes(reinterpret_cast<const uint8_t*>(images) + at, mean, scale, count, y);
      } else {
        normalize_floats(reinterpret_cast<const float*>(images) + at, mean, scale, count, y);
      }
      if (y == buffer) convert_from_f32(buffer, target_type_, images_ + at * 2, size_t(count));
    }
  }

  Pattern pattern_;
  Slot slots_[2];
  const int32_t* step_;
  DType source_type_, target_type_ = DType::f32;
  int64_t elements_;
  std::byte *images_, *labels_;
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
