// SPDX-License-Identifier: Apache-2.0
#include "capi/callback_source.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "capi/layout.h"
#include "engine/base/status.h"

namespace ren::capi {
namespace {

class CallbackSource final : public BatchSource {
 public:
  CallbackSource(const ren_source_options& o, ren_fill_fn fn, void* user) : fn_(fn), user_(user) {
    description_.samples = o.samples;
    description_.batch = o.batch;
    description_.height = o.height;
    description_.width = o.width;
    description_.channels = o.channels;
    description_.labels_per_sample = std::max<int64_t>(1, o.labels_per_sample);
    description_.image_type = o.image_type == REN_IMAGE_FLOAT32 ? DType::f32 : DType::u8;
  }

  ~CallbackSource() override {
    for (Slot& slot : slots_) release(slot);
  }

  const Description& description() const override { return description_; }
  std::map<std::string, std::string> identity() const override {
    const Description& d = description_;
    return {{"kind", "callback"},
            {"samples", std::to_string(d.samples)},
            {"size", fmt::format("{}x{}x{} (height, width, channels)", d.height, d.width, d.channels)}};
  }
  int64_t batches_per_epoch() const override {
    return (description_.samples + description_.batch - 1) / description_.batch;
  }

  void use_allocator(HostAllocator& allocator) override { allocator_ = &allocator; }

  void start_epoch(int64_t epoch, int64_t first_batch) override {
    if (epoch < 0 || first_batch < 0 || first_batch > batches_per_epoch())
      fail(StatusCode::invalid_argument, "an epoch can't begin at epoch {}, batch {}", epoch, first_batch);
    for (Slot& slot : slots_) allocate(slot);
    epoch_ = epoch;
    batch_ = first_batch;
  }

  bool next(BatchView& view) override {
    if (stopped_) fail(StatusCode::cancelled, "loading was stopped");
    if (epoch_ < 0) fail(StatusCode::invalid_state, "no epoch was started");
    if (batch_ >= batches_per_epoch()) return false;
    Slot& slot = slots_[batch_ & 1];
    view.first_sample = batch_ * description_.batch;
    view.count = std::min(description_.batch, description_.samples - view.first_sample);
    const size_t element = size_of(description_.image_type);
    const bool planar = description_.channels > 1;
    void* const filled = planar ? scratch(element) : slot.images;
    if (fn_(user_, epoch_, view.first_sample, view.count, filled, slot.labels) != 0)
      fail(StatusCode::cancelled, "the callback that makes batches asked to stop");
    if (planar)
      nchw_to_nhwc(filled, slot.images, view.count, description_.channels,
                   description_.height * description_.width, element);
    view.images = slot.images;
    view.labels = slot.labels;
    ++batch_;
    return true;
  }

  void request_stop() noexcept override { stopped_ = true; }

 private:
  struct Slot {
    void* images = nullptr;
    int32_t* labels = nullptr;
  };

  size_t values() const {
    return size_t(description_.batch * description_.height * description_.width * description_.channels);
  }

  void allocate(Slot& slot) {
    if (slot.images == nullptr)
      slot.images = allocator_->allocate(values() * size_of(description_.image_type));
    if (slot.labels == nullptr)
      slot.labels = static_cast<int32_t*>(allocator_->allocate(
          size_t(description_.batch * description_.labels_per_sample) * sizeof(int32_t)));
  }

  void release(Slot& slot) noexcept {
    if (slot.images != nullptr) allocator_->release(slot.images);
    if (slot.labels != nullptr) allocator_->release(slot.labels);
  }

  void* scratch(size_t element) {
    scratch_.resize(values() * element);
    return scratch_.data();
  }

  Description description_;
  ren_fill_fn fn_;
  void* user_;
  HostAllocator* allocator_ = &default_host_allocator();
  Slot slots_[2];
  std::vector<std::byte> scratch_;
  int64_t epoch_ = -1, batch_ = 0;
  std::atomic<bool> stopped_{false};
};

constexpr int64_t kMostValues = int64_t{1} << 40;  // in a batch; keeps products from overflowing

}  // namespace

std::unique_ptr<BatchSource> make_callback_source(const ren_source_options& o, ren_fill_fn fn, void* user) {
  if (fn == nullptr) fail(StatusCode::invalid_argument, "fn is NULL");
  if (o.image_type != REN_IMAGE_UINT8 && o.image_type != REN_IMAGE_FLOAT32)
    fail(StatusCode::invalid_argument, "image_type is {}", o.image_type);
  struct Size {
    int64_t value, most;
    const char* name;
  };
  double values = 1;
  for (const Size& s : {Size{o.batch, kMostBatch, "batch"}, Size{o.channels, kMostSide, "channels"},
                        Size{o.height, kMostSide, "height"}, Size{o.width, kMostSide, "width"}}) {
    if (s.value < 1 || s.value > s.most)
      fail(StatusCode::invalid_argument, "{} is {}: 1 to {} are possible", s.name, s.value, s.most);
    values *= double(s.value);
  }
  if (values > double(kMostValues))
    fail(StatusCode::invalid_argument, "a batch of {} pictures of {}x{}x{} has {} values: too many", o.batch,
         o.channels, o.height, o.width, values);
  if (o.samples < 1) fail(StatusCode::invalid_argument, "samples is {}", o.samples);
  if (o.labels_per_sample < 0 || o.labels_per_sample > kMostValues / o.batch)
    fail(StatusCode::invalid_argument, "labels_per_sample is {}", o.labels_per_sample);
  return std::make_unique<CallbackSource>(o, fn, user);
}

}  // namespace ren::capi
