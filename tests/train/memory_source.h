// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/base/batch_source.h"
#include "engine/base/rng.h"

namespace ren::test {

// A batch source of generated float images: class k has its brightness in quarter k. Every epoch
// has another order; the stream depends on epoch and batch alone.
class MemorySource final : public BatchSource {
 public:
  MemorySource(int64_t samples, int64_t batch, int64_t size, int64_t channels, bool shuffle = true)
      : shuffle_(shuffle) {
    d_.samples = samples;
    d_.batch = batch;
    d_.height = d_.width = size;
    d_.channels = channels;
    d_.image_type = DType::f32;
    const int64_t pixels = size * size * channels;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    images_.resize(size_t(samples * pixels));
    for (int64_t i = 0; i < samples; ++i) {
      labels_.push_back(int32_t(i % 4));
      for (int64_t p = 0; p < pixels; ++p)
        images_[size_t(i * pixels + p)] = normal(random) + (p * 4 / pixels == i % 4 ? 1.0f : 0.0f);
    }
  }

  const Description& description() const override { return d_; }
  void describe(int64_t labels_per_sample, std::vector<std::string> classes) {
    d_.labels_per_sample = labels_per_sample;
    d_.classes = std::move(classes);
  }
  std::map<std::string, std::string> identity() const override { return identity_; }
  std::map<std::string, std::string> identity_ = {{"kind", "memory"}};
  std::string sample_name(int64_t, int64_t position) const override {
    return "sample " + std::to_string(position);
  }
  void use_allocator(HostAllocator&) override {}
  int64_t batches_per_epoch() const override { return (d_.samples + d_.batch - 1) / d_.batch; }
  void start_epoch(int64_t epoch, int64_t first_batch) override {
    order_.resize(size_t(d_.samples));
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = int64_t(i);
    if (shuffle_) {
      RandomStream stream(11, 1, 0, uint32_t(epoch));
      for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[stream.below(uint32_t(i))]);
    }
    next_ = first_batch;
  }
  bool next(BatchView& view) override {
    if (next_ >= batches_per_epoch()) return false;
    const int64_t first = next_ * d_.batch, count = std::min(d_.batch, d_.samples - first);
    const int64_t pixels = d_.height * d_.width * d_.channels;
    auto& slot = slots_[next_ & 1];
    slot.first.assign(size_t(d_.batch * pixels), 0.0f);
    slot.second.assign(size_t(d_.batch), 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = order_[size_t(first + i)];
      std::memcpy(&slot.first[size_t(i * pixels)], &images_[size_t(sample * pixels)], size_t(pixels) * 4);
      slot.second[size_t(i)] = labels_[size_t(sample)];
    }
    view = {slot.first.data(), slot.second.data(), count, first};
    ++next_;
    return true;
  }
  void request_stop() noexcept override {}
  void set_pixel(int64_t sample, float value) {
    images_[size_t(sample * d_.height * d_.width * d_.channels)] = value;
  }

 private:
  Description d_;
  bool shuffle_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> order_;
  std::pair<std::vector<float>, std::vector<int32_t>> slots_[2];
  int64_t next_ = 0;
};

}  // namespace ren::test
