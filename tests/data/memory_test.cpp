// SPDX-License-Identifier: Apache-2.0
// The loader's resident memory: flat over many epochs, and within the bound of docs/data.md with pictures of
// a hundred megapixels among small ones.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <jpeglib.h>

#include "data/loader_support.h"
#include "engine/base/file.h"

// A sanitizer keeps what is freed, and its shadow of it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace ren::data::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

int64_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long total = 0, resident = 0;
  const int read = file == nullptr ? 0 : std::fscanf(file, "%ld %ld", &total, &resident);
  if (file != nullptr) std::fclose(file);
  return read == 2 ? int64_t{resident} * sysconf(_SC_PAGESIZE) : 0;
}

// The most that was resident while it lives, looked at every millisecond: a picture of a hundred megapixels
// takes hundreds of them.
class Peak {
 public:
  Peak() : most_(resident_bytes()), thread_([this] { watch(); }) {}
  ~Peak() { stop(); }
  int64_t stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return most_;
  }

 private:
  void watch() {
    while (!over_) {
      most_ = std::max(most_, resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  int64_t most_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Of one colour but for its rows' shades; made row by row, for the test must not need what it measures.
std::string large_jpeg(int width, int height) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = JDIMENSION(width), info.image_height = JDIMENSION(height);
  info.input_components = 3, info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(size_t(width) * 3);
  JSAMPROW rows[] = {row.data()};
  while (info.next_scanline < info.image_height) {
    std::fill(row.begin(), row.end(), uint8_t(info.next_scanline >> 6));
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return out;
}

void read_epoch(Loader& loader, int64_t epoch) {
  BatchView view;
  loader.start_epoch(epoch, 0);
  while (loader.next(view)) {
  }
}

// What is leaked with every sample would show: a kilobyte each is 2 MiB in the end, their files 15 MiB.
TEST(Memory, StaysFlatOverTwentyEpochs) {
  TemporaryFolder folder;
  for (int i = 0; i < 120; ++i)
    folder.write(fmt::format("{}/{:03}.jpg", i % 2 ? "a" : "b", i), jpeg_of(160 + i % 9, 120, uint32_t(i)));
  const Dataset set = open_dataset(folder.path());
  for (const int64_t cache : {int64_t{0}, 2 * kMiB}) {
    LoaderOptions o = training(16);
    o.height = o.width = 64;
    o.cache_bytes = cache;
    o.augmentation.steps = {Step::with_defaults(StepKind::rand_augment)};
    const auto loader = make_loader(set.train(), o);
    for (int64_t epoch = 0; epoch < 4; ++epoch) read_epoch(*loader, epoch);  // all buffers have their size
    const int64_t before = resident_bytes();
    for (int64_t epoch = 4; epoch < 20; ++epoch) read_epoch(*loader, epoch);
    // Left for the allocator: what its two threads' pools may grow by when large buffers move within them.
    EXPECT_LT(resident_bytes() - before, 3 * kMiB / 2) << cache;
  }
}

TEST(Memory, LargePicturesTakeTheirPixelsAndGiveThemBack) {
  constexpr int kSide = 10'000, kThreads = 2;
  constexpr int64_t kPixels = int64_t{kSide} * kSide * 3;
  TemporaryFolder folder;
  const std::string large = large_jpeg(kSide, kSide);
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("{}/{:03}.jpg", i % 2 ? "a" : "b", i);
    folder.write(name, i % 13 == 5 ? large : jpeg_of(200, 150, uint32_t(i)));
  }
  const Dataset set = open_dataset(folder.path());
  for (LoaderOptions o : {training(8), evaluation(8)}) {
    o.height = o.width = 128;
    o.threads = kThreads;
    o.cache_bytes = 4 * kMiB;
    const int64_t before = resident_bytes();
    const auto loader = make_loader(set.train(), o);
    Peak peak;
    for (int64_t epoch = 0; epoch < 2; ++epoch) read_epoch(*loader, epoch);
    const int64_t most = peak.stop() - before, after = resident_bytes() - before;
    const int64_t batches = (o.prefetch + 2) * o.batch * 128 * 128 * 3;
    // The file; resizing's buffers, at most 128 columns of 10,000 rows; libjpeg's rows; the allocator's rest.
    constexpr int64_t kBesides = 12 * kMiB;
    EXPECT_LT(most, batches + o.cache_bytes + kThreads * (kPixels + kBesides)) << o.augmentation.text();
    EXPECT_GT(most, kPixels / 3) << "no large picture was seen";
    // What a thread keeps: at most 32 MiB for pixels, nothing of a large picture.
    EXPECT_LT(after, batches + o.cache_bytes + kThreads * kBesides) << o.augmentation.text();
  }
}

}  // namespace
}  // namespace ren::data::test

#endif
