// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline/in_order.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr std::chrono::milliseconds kTick{100};

class Run {
 public:
  explicit Run(const InOrder& work)
      : work_(work), slots_(slots_for(work.threads)), next_(work.begin), taken_(work.begin) {}

  ~Run() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void run() {
    start();
    for (int64_t item = work_.begin; item < work_.end; ++item) {
      const size_t at = slot_of(item);
      await(at);
      if (slots_[at].error) std::rethrow_exception(slots_[at].error);
      work_.take(item, at);
      {
        const std::lock_guard lock(mutex_);
        slots_[at].made = false;
        taken_ = item + 1;
      }
      room_.notify_one();
      work_.wait();
    }
  }

 private:
  struct Slot {
    bool made = false;
    std::exception_ptr error;
  };

  size_t slot_of(int64_t item) const { return size_t(item - work_.begin) % slots_.size(); }

  void start() {
    const int64_t useful = std::min<int64_t>(work_.threads, work_.end - work_.begin);
    try {
      for (int i = 0; i < useful; ++i) threads_.emplace_back([this, i] { make_items(i); });
    } catch (const std::system_error& error) {  // fewer threads do the same work
      if (threads_.empty()) fail(StatusCode::out_of_memory, "no thread can be started: {}", error.what());
    }
  }

  void await(size_t at) {
    std::unique_lock lock(mutex_);
    while (!made_.wait_for(lock, kTick, [&] { return slots_[at].made; })) {
      lock.unlock();
      work_.wait();
      lock.lock();
    }
  }

  void make_items(int thread) {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock,
                 [&] { return stopped_ || next_ == work_.end || next_ - taken_ < int64_t(slots_.size()); });
      if (stopped_ || next_ == work_.end) break;
      const int64_t item = next_++;
      const size_t at = slot_of(item);
      lock.unlock();
      std::exception_ptr error;
      try {
        work_.make(thread, item, at);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slots_[at] = {true, error};
      made_.notify_one();
    }
    room_.notify_all();  // nothing is left for the others either
  }

  const InOrder& work_;
  std::mutex mutex_;
  std::condition_variable room_, made_;
  std::vector<Slot> slots_;
  int64_t next_, taken_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

size_t slots_for(int threads) { return 2 * size_t(threads); }

void run_in_order(const InOrder& work) { Run(work).run(); }

}  // namespace ren::data
