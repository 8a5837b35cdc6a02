// SPDX-License-Identifier: Apache-2.0
// Decoding at a reduced size: near the exact pixels where it applies, equal to them where it doesn't, and the
// same bytes whatever the cache.
#include <cmath>

#include "data/loader_support.h"

namespace ren::data::test {
namespace {

class FastDecodeTest : public ::testing::Test {
 protected:
  // Smooth pictures, as photographs are: sums of waves no shorter than 16 pixels.
  static Image smooth(int width, int height, int seed) {
    Image picture(width, height, 3);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c)
          picture.row(y)[x * 3 + c] = uint8_t(128 + 60 * std::sin(x * 0.1 + seed + c) +
                                              60 * std::sin(y * 0.13 + x * 0.02 + seed * 2 - c));
    return picture;
  }
  FastDecodeTest() {
    for (int i = 0; i < 24; ++i) {
      const Image picture = i < 12 ? smooth(150 + i, 130 + 2 * i, i) : smooth(40 + i, 60, i);
      folder_.write(fmt::format("{}/{:02}.jpg", i % 2 ? "a" : "b", i), encode_jpeg(picture));
    }
  }
  LoaderOptions options(Decoding decoding) const {
    LoaderOptions o = training();
    o.decoding = decoding;
    return o;
  }
  TemporaryFolder folder_;
};

TEST_F(FastDecodeTest, IsNearTheExactPixels) {
  const Dataset set = open_dataset(folder_.path());
  for (const int64_t size : {16, 32}) {
    LoaderOptions exact = options(Decoding::exact), fast = options(Decoding::fast);
    exact.height = exact.width = fast.height = fast.width = size;
    const std::vector<Taken> a = epochs_of(set.train(), exact, 4), b = epochs_of(set.train(), fast, 4);
    ASSERT_EQ(a.size(), b.size());
    double sum = 0;
    int64_t count = 0, differing = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].labels, b[i].labels);
      for (size_t k = 0; k < a[i].images.size(); ++k, ++count) {
        const int d = std::abs(int(uint8_t(a[i].images[k])) - int(uint8_t(b[i].images[k])));
        sum += d;
        differing += d != 0 ? 1 : 0;
      }
    }
    // A shift by half a pixel of these waves is 6 levels on the average; real pictures: docs/data.md.
    EXPECT_LT(sum / double(count), 1.0) << size;
    EXPECT_GT(differing, count / 20) << size;  // it was used at all
  }
}

TEST_F(FastDecodeTest, IsExactWhereNothingIsReducedByTwo) {
  const Dataset set = open_dataset(folder_.path());
  LoaderOptions exact = options(Decoding::exact), fast = options(Decoding::fast);
  exact.height = exact.width = fast.height = fast.width = 100;
  EXPECT_EQ(epochs_of(set.train(), fast, 2), epochs_of(set.train(), exact, 2));
  exact = options(Decoding::exact), fast = options(Decoding::fast);
  exact.augmentation = fast.augmentation = Augmentation::eval();
  EXPECT_EQ(epochs_of(set.train(), fast, 1), epochs_of(set.train(), exact, 1));
}

TEST_F(FastDecodeTest, SameBytesWhateverTheCacheAndTheThreads) {
  folder_.write("a/broken.jpg", "text");
  const Dataset set = open_dataset(folder_.path());
  LoaderOptions o = options(Decoding::fast);
  o.bad_files = BadFiles::replace;
  o.cache_bytes = 0;
  o.threads = 1;
  const std::vector<Taken> wanted = epochs_of(set.train(), o, 3);
  for (const int threads : {2, 5})
    for (const int64_t cache : {int64_t{30'000}, int64_t{1} << 30}) {
      o.threads = threads;
      o.cache_bytes = cache;
      EXPECT_EQ(epochs_of(set.train(), o, 3), wanted) << threads << ' ' << cache;
    }
  const auto loader = make_loader(set.train(), o);
  epoch_of(*loader, 0);
  EXPECT_EQ(loader->identity().at("decoding"), "fast");
  EXPECT_NE(loader->identity(), make_loader(set.train(), options(Decoding::exact))->identity());
  // Of those that may be reduced nothing is kept, of the others everything.
  LoaderOptions larger = o;
  larger.height = larger.width = 31;  // twice that is more than the height of the twelve small ones
  const auto some = make_loader(set.train(), larger);
  epoch_of(*some, 0);
  EXPECT_EQ(some->report().cached_images, 12);
}

}  // namespace
}  // namespace ren::data::test
