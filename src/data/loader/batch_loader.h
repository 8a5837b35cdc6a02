// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/loader/sample_maker.h"
#include "engine/base/status.h"

namespace ren::data {

// A ring of batch slots that worker threads fill in the order of the stream. All threads are at the same
// batch, the first that has samples left, and each takes its next sample when it is done with one: no thread
// has samples that wait for it, so there are none to steal, and one that is at a large picture holds up
// nothing but that picture's batch, while the others go on to the end of the ring. The stream goes on into
// the next epoch by itself, so the first batch of an epoch is there when the trainer asks for it;
// start_epoch() for anything else discards what was made ahead.
class BatchLoader final : public Loader {
 public:
  BatchLoader(const Split& split, const LoaderOptions& options);
  ~BatchLoader() override;

  const Description& description() const override { return description_; }
  std::map<std::string, std::string> identity() const override;
  std::string sample_name(int64_t epoch, int64_t position) const override;
  void use_allocator(HostAllocator& allocator) override;
  int64_t batches_per_epoch() const override { return batches_; }
  void start_epoch(int64_t epoch, int64_t first_batch) override;
  bool next(BatchView& view) override;
  void request_stop() noexcept override;
  LoaderReport report() const override;
  LoaderStatistics statistics() const override;

 private:
  using Order = std::shared_ptr<const std::vector<uint32_t>>;  // null = in sequence

  struct Slot {
    void* memory = nullptr;
    uint8_t* images = nullptr;
    int32_t* labels = nullptr;
    int64_t epoch = 0, batch = 0;
    BatchRange range;
    Order order;
    std::atomic<int64_t> next{0};  // sample to be taken by a worker, which needs no mutex for it
    int64_t done = 0;              // samples of workers that have left the batch
    int64_t error_at = 0;          // the first sample that failed
    std::exception_ptr error;
    int64_t given = 0;  // the call of next() that gave it out
  };
  // A worker's time at a batch. It begins with a sample: a batch that is done has no workers then, also none
  // that would only find nothing left.
  struct Task {
    Slot* slot = nullptr;
    int64_t first = 0;  // sample
    uint64_t generation = 0;
    int64_t made = 0;  // samples, those that failed counted
  };

  void describe();
  void allocate_slots();
  void start_threads();
  double cpu_seconds() const;
  void work() noexcept;
  bool take(Task& task);
  bool schedule();
  ThreadWork run(Task& task, std::unique_ptr<SampleMaker>& maker) noexcept;
  void make_sample(Slot& slot, int64_t sample, std::unique_ptr<SampleMaker>& maker) noexcept;
  void wait_for_batch(std::unique_lock<std::mutex>& lock);
  void fail_stream(const std::exception_ptr& error);
  void note_error(Slot& slot, int64_t sample, std::exception_ptr error);
  void discard_ahead(std::unique_lock<std::mutex>& lock);
  void release_held(int64_t up_to_call);
  int64_t keyed_epoch(int64_t epoch) const { return depends_on_epoch_ ? epoch : 0; }
  bool has_samples_left(const Slot& slot) const { return slot.next.load() < slot.range.count; }
  bool is_ready(const Slot& slot) const { return slot.done == slot.range.count; }
  bool has_batch() const { return !queue_.empty() && is_ready(*queue_.front()); }

  SampleSet samples_;
  Description description_;
  int64_t batches_ = 0;
  int thread_count_ = 1;
  bool depends_on_epoch_ = false;
  size_t image_bytes_ = 0;  // of one sample

  HostAllocator* allocator_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<std::thread> threads_;
  std::vector<clockid_t> cpu_clocks_;  // of these threads

  const std::exception_ptr no_memory_ =
      std::make_exception_ptr(Error(StatusCode::out_of_memory, "no memory to load a picture"));
  mutable std::mutex mutex_;
  std::condition_variable work_, ready_, idle_;
  // Under the mutex:
  std::vector<Slot*> free_;
  std::deque<Slot*> queue_;                          // being filled or full, in the stream's order
  std::deque<Slot*> held_;                           // given out, oldest first
  int64_t schedule_epoch_ = 0, schedule_batch_ = 0;  // the next batch to be begun
  Order order_;
  int64_t order_epoch_ = -1;
  int64_t epoch_ = -1, batch_ = 0;  // the next batch to be given out; epoch -1: none begun
  int64_t calls_ = 0;
  int in_flight_ = 0;
  ThreadWork work_done_;
  int64_t batches_given_ = 0, wait_ns_ = 0;
  std::exception_ptr stream_error_;
  bool paused_ = true, closing_ = false;
  std::atomic<uint64_t> generation_{0};  // changes when what was made ahead is discarded
  std::atomic<bool> stopped_{false};
};

}  // namespace ren::data
