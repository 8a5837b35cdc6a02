// SPDX-License-Identifier: Apache-2.0
// What a loader tells of its time: numbers that hold on any machine, however busy.
#include <chrono>
#include <filesystem>
#include <thread>

#include "data/loader_support.h"

namespace ren::data::test {
namespace {

double work_of(const LoaderStatistics& s) { return s.read_seconds + s.decode_seconds + s.transform_seconds; }

int64_t bytes_of(const Split& split) {
  int64_t bytes = 0;
  for (const int64_t file : split.files) bytes += split.store->facts(file).size;
  return bytes;
}

// Evaluation of one epoch, and nothing made ahead that the numbers could hold besides.
LoaderStatistics after_epochs(Loader& loader, int64_t count) {
  for (int64_t epoch = 0; epoch < count; ++epoch) epoch_of(loader, epoch);
  for (;;) {  // what is made ahead ends when the queue is full
    const LoaderStatistics before = loader.statistics();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const LoaderStatistics s = loader.statistics();
    if (s.pictures == before.pictures) return s;
  }
}

TEST_F(LoaderTest, StatisticsCountWhatWasDone) {
  LoaderOptions o = training();
  o.cache_bytes = 0;
  o.prefetch = 1;
  const auto loader = make_loader(split(), o);
  const LoaderStatistics none = loader->statistics();
  EXPECT_EQ(none.threads, 2);
  EXPECT_EQ(none.batches + none.pictures + none.bytes_read, 0);
  EXPECT_EQ(work_of(none) + none.wait_seconds + none.cpu_seconds, 0.0);

  const auto begin = std::chrono::steady_clock::now();
  const LoaderStatistics s = after_epochs(*loader, 2);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(s.batches, 12);
  EXPECT_GE(s.pictures, 2 * kSamples);
  EXPECT_LE(s.pictures, 2 * kSamples + 8);  // one batch ahead
  EXPECT_EQ(s.pictures_read, s.pictures);
  EXPECT_GE(s.bytes_read, 2 * bytes_of(split()));
  EXPECT_LT(s.bytes_read, 3 * bytes_of(split()));
  EXPECT_GT(s.read_seconds, 0.0);
  EXPECT_GT(s.decode_seconds, 0.0);
  EXPECT_GT(s.transform_seconds, 0.0);
  EXPECT_LE(work_of(s), 2 * seconds);           // of two threads
  EXPECT_LE(s.cpu_seconds, 2 * seconds + 0.1);  // the kernel's clock of threads is another one
  EXPECT_GT(s.cpu_seconds, 0.0);
  EXPECT_LE(s.wait_seconds, seconds);
}

TEST_F(LoaderTest, StatisticsTellCachedPicturesFromReadOnes) {
  LoaderOptions o = evaluation();
  o.cache_bytes = 1 << 30;
  const auto loader = make_loader(split(), o);
  const LoaderStatistics first = after_epochs(*loader, 1);
  EXPECT_EQ(first.pictures_read, kSamples);
  EXPECT_EQ(first.bytes_read, bytes_of(split()));
  const LoaderStatistics all = after_epochs(*loader, 3);
  EXPECT_GE(all.pictures, 4 * kSamples);
  EXPECT_EQ(all.pictures_read, kSamples);
  EXPECT_EQ(all.decode_seconds, first.decode_seconds);
}

// Training waits as long as its batches take when there is nothing else to do.
TEST_F(LoaderTest, StatisticsTellWhoWaits) {
  LoaderOptions o = training(kSamples);
  o.height = o.width = 512;
  o.cache_bytes = 0;
  o.threads = 1;
  o.prefetch = 1;
  const auto slow = make_loader(split(), o);
  BatchView view;
  slow->start_epoch(0, 0);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(slow->next(view));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(slow->statistics().wait_seconds, seconds);
  EXPECT_GT(slow->statistics().wait_seconds, 0.5 * seconds);  // all that such a call does is to wait

  // A batch that is ready is not waited for.
  while (slow->statistics().pictures < 2 * kSamples)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  slow->start_epoch(1, 0);
  const double before = slow->statistics().wait_seconds;
  ASSERT_TRUE(slow->next(view));
  EXPECT_EQ(slow->statistics().wait_seconds, before);
}

TEST_F(LoaderTest, StatisticsCountBadFilesToo) {
  folder_.write("a/03.jpg", "this is text, whatever its name says");
  LoaderOptions o = evaluation();
  o.bad_files = BadFiles::skip;
  o.cache_bytes = 0;
  const auto loader = make_loader(split(), o);
  const LoaderStatistics s = after_epochs(*loader, 1);
  EXPECT_EQ(s.batches, 6);
  EXPECT_GE(s.pictures, kSamples);
  EXPECT_GE(s.pictures_read, kSamples);  // once, to find out
}

}  // namespace
}  // namespace ren::data::test
