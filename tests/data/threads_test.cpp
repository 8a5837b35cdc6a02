// SPDX-License-Identifier: Apache-2.0
// One item that takes long holds up its own turn alone: the other threads go on as far as memory is meant to
// go, and what they made comes in order.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "data/loader_support.h"
#include "data/pipeline/in_order.h"

namespace ren::data::test {
namespace {

using namespace std::chrono_literals;

// Where one has to wait until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

// True when the count is reached within a time that even a busy machine keeps.
bool reaches(const std::atomic<int>& count, int wanted) {
  for (int i = 0; i < 3000 && count < wanted; ++i) std::this_thread::sleep_for(10ms);
  return count == wanted;
}

// True when it is still the same after as long as the other items would take a hundred times.
bool stays(const std::atomic<int>& count, int wanted) {
  std::this_thread::sleep_for(200ms);
  return count == wanted;
}

// Another store's files, of which one doesn't arrive before the gate is opened.
class SlowStore final : public FileStore {
 public:
  SlowStore(std::shared_ptr<const FileStore> files, int64_t slow) : files_(std::move(files)), slow_(slow) {
    uri_ = files_->uri();
    for (int64_t i = 0; i < files_->size(); ++i) paths_.add(std::string(files_->path(i)));
  }
  FileFacts facts(int64_t file) const override { return files_->facts(file); }
  std::string full_path(int64_t file) const override { return files_->full_path(file); }
  void read(int64_t file, std::string& bytes) const override {
    ++begun;
    if (file == slow_) gate.pass();
    files_->read(file, bytes);
  }
  std::string read_head(int64_t file, size_t limit) const override { return files_->read_head(file, limit); }

  mutable std::atomic<int> begun{0};
  mutable Gate gate;

 private:
  const std::shared_ptr<const FileStore> files_;
  const int64_t slow_;
};

class SlowSample : public LoaderTest, public ::testing::WithParamInterface<int> {};

TEST_P(SlowSample, HoldsUpNoOtherThread) {
  // Batches that are large beside the number of threads: any that takes several samples at once would show.
  LoaderOptions o = evaluation(12);
  o.last_batch = LastBatch::drop;
  o.prefetch = 2;
  o.cache_bytes = 0;
  o.threads = 1;
  const std::vector<Taken> wanted = epochs_of(split(), o, 1);
  o.threads = GetParam();
  for (const int64_t slow : {0, 5, 11}) {
    Split slowed = split();
    const auto store = std::make_shared<SlowStore>(slowed.store, slowed.files[size_t(slow)]);
    slowed.store = store;
    const auto loader = make_loader(slowed, o);
    loader->start_epoch(0, 0);
    // Nothing is taken, so what is made ahead is all that may be: two batches, whatever the slow sample's
    // place.
    EXPECT_TRUE(reaches(store->begun, 24)) << store->begun << " with sample " << slow;
    EXPECT_TRUE(stays(store->begun, 24)) << store->begun;
    std::atomic<int> given{0};
    std::vector<Taken> seen;
    std::thread taker([&] {
      BatchView view;
      while (loader->next(view)) {
        seen.push_back(copy_of(view, *loader));
        ++given;
      }
    });
    EXPECT_TRUE(stays(given, 0)) << "the first batch is not whole";
    store->gate.open();
    taker.join();
    EXPECT_EQ(seen, wanted) << slow;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SlowSample, ::testing::Values(2, 3, 16));

TEST(InOrder, ASlowItemHoldsUpNoOtherThread) {
  for (const int threads : {2, 5}) {
    const int ahead = int(slots_for(threads));
    Gate gate;
    std::atomic<int> begun{0};
    std::vector<int64_t> results(slots_for(threads), -1), taken;
    std::thread opener([&] {
      EXPECT_TRUE(reaches(begun, ahead)) << begun;
      EXPECT_TRUE(stays(begun, ahead)) << begun;
      gate.open();
    });
    InOrder work;
    work.end = 40;
    work.threads = threads;
    work.make = [&](int, int64_t item, size_t slot) {
      ++begun;
      if (item == 0) gate.pass();
      results[slot] = item;
    };
    work.take = [&](int64_t item, size_t slot) {
      EXPECT_EQ(results[slot], item);
      taken.push_back(item);
    };
    work.wait = [] {};
    run_in_order(work);
    opener.join();
    ASSERT_EQ(taken.size(), 40u);
    EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
  }
}

}  // namespace
}  // namespace ren::data::test
