// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "capi/guard.h"
#include "data/dataset.h"
#include "engine/compile/spec.h"

namespace ren::capi {

// The options as the loader takes them; throws invalid_argument, naming the field.
data::LoaderOptions loader_options(const ren_loader_options& options);

// A batch source behind a handle. Trainers come and go while a loader lives: it takes the first
// allocator that it is offered and keeps its owner alive, for the slots are made of its memory.
class LoaderState final : public BatchSource {
 public:
  // `mix`: what its augmentation asks of who trains with it.
  LoaderState(std::unique_ptr<data::Loader> pictures, std::string place, std::string augmentation,
              MixSpec mix);
  explicit LoaderState(std::unique_ptr<BatchSource> source) : source_(std::move(source)) {}

  const Description& description() const override { return source_->description(); }
  std::map<std::string, std::string> identity() const override { return source_->identity(); }
  std::string sample_name(int64_t epoch, int64_t position) const override {
    return source_->sample_name(epoch, position);
  }
  void use_allocator(HostAllocator& allocator) override;
  int64_t batches_per_epoch() const override { return source_->batches_per_epoch(); }
  void start_epoch(int64_t epoch, int64_t first_batch) override;
  bool next(BatchView& view) override { return source_->next(view); }
  void request_stop() noexcept override { source_->request_stop(); }

  // Who owns the allocator that use_allocator will bring.
  void set_owner(std::shared_ptr<void> owner) { offered_owner_ = std::move(owner); }
  bool has_started() const { return started_; }
  data::LoaderReport report() const;
  data::LoaderStatistics statistics() const;
  const std::string& place() const { return place_; }  // of the data set; empty: none
  const std::string& augmentation() const { return augmentation_; }
  const MixSpec& mix() const { return mix_; }

  UseFlag use;

 private:
  std::shared_ptr<void> owner_, offered_owner_;  // before source_: outlives its slots
  std::unique_ptr<BatchSource> source_;
  const data::Loader* pictures_ = nullptr;  // source_, when it reads pictures
  std::string place_, augmentation_;
  MixSpec mix_;
  bool started_ = false;
};

}  // namespace ren::capi

struct ren_loader : ren::capi::Handle<ren::capi::LoaderState, 0x52454e5f4c4f4144> {};
