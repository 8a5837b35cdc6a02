// SPDX-License-Identifier: Apache-2.0
#include "data/augment/transform.h"

#include <cmath>
#include <cstring>
#include <set>

#include "data/augment/normalization.h"
#include "data/support.h"

namespace ren::data::test {
namespace {

TEST(RandomResizedCrop, FollowsItsDistribution) {
  const Augmentation a;
  double area_sum = 0, log_ratio_sum = 0;
  const int draws = 10000;
  for (int i = 0; i < draws; ++i) {
    RandomStream random(3, 1, uint64_t(i));
    const Region r = random_resized_crop(500, 400, a, random);
    ASSERT_GE(r.left, 0);
    ASSERT_GE(r.top, 0);
    ASSERT_LE(r.left + r.width, 500);
    ASSERT_LE(r.top + r.height, 400);
    const double area = double(r.width) * r.height / (500.0 * 400.0), ratio = double(r.width) / r.height;
    ASSERT_GE(area, 0.079);
    ASSERT_LE(area, 1.0);
    ASSERT_GE(ratio, 0.74);
    ASSERT_LE(ratio, 1.36);
    area_sum += area;
    log_ratio_sum += std::log(ratio);
  }
  // Means that torchvision's own get_params has for this size; large areas fit at few ratios.
  EXPECT_NEAR(area_sum / draws, 0.452, 0.01);
  EXPECT_NEAR(log_ratio_sum / draws, 0.028, 0.01);
}

TEST(RandomResizedCrop, FallsBackToTheCentre) {
  Augmentation a;
  a.min_scale = 0.9f;
  RandomStream random(3, 1, 0);
  const Region tall = random_resized_crop(10, 1000, a, random);
  EXPECT_EQ(tall.width, 10);
  EXPECT_EQ(tall.height, 13);  // round(10 / (3/4))
  EXPECT_EQ(tall.left, 0);
  EXPECT_EQ(tall.top, (1000 - 13) / 2);
  const Region wide = random_resized_crop(1000, 10, a, random);
  EXPECT_EQ(wide.height, 10);
  EXPECT_EQ(wide.width, 13);  // round(10 * 4/3)
}

TEST(CenterCrop, RoundsHalfToEvenAsPythonDoes) {
  EXPECT_EQ(center_offset(257, 224), 16);  // 16.5
  EXPECT_EQ(center_offset(259, 224), 18);  // 17.5
  EXPECT_EQ(center_offset(256, 224), 16);
  EXPECT_EQ(center_offset(20, 23), -1);
  EXPECT_EQ(center_offset(20, 24), -2);
}

TEST(ShortSide, KeepsTheProportionRoundedDown) {
  int width, height;
  short_side_size(500, 375, 256, width, height);
  EXPECT_EQ(width, 341);
  EXPECT_EQ(height, 256);
  short_side_size(375, 500, 256, width, height);
  EXPECT_EQ(width, 256);
  EXPECT_EQ(height, 341);
}

std::string finish(Transformer& transformer, const Image& picture, uint64_t index, size_t bytes) {
  RandomStream random(11, 2, index);
  std::string out(bytes, '\x7F');
  transformer.finish(transformer.prepare(picture), random, reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

// pad_crop against the plain definition: pad by black, cut at an offset, perhaps mirror.
TEST(PadCrop, IsACutOfThePaddedPicture) {
  for (const int channels : {1, 3}) {
    for (const int padding : {0, 3, 12}) {
      const int width = 9, height = 7;
      const Image picture = make_picture(width, height, channels, 5);
      Augmentation a;
      a.mode = Augmentation::Mode::pad_crop;
      a.padding = padding;
      a.flip = 0.5f;
      Transformer transformer(a, height, width, channels);
      int flips = 0;
      for (uint64_t i = 0; i < 200; ++i) {
        const std::string got = finish(transformer, picture, i, picture.bytes());
        RandomStream random(11, 2, i);
        const int top = int(random.below(uint32_t(2 * padding + 1))) - padding;
        const int left = int(random.below(uint32_t(2 * padding + 1))) - padding;
        const bool flip = random.uniform() < 0.5f;
        flips += flip;
        for (int y = 0; y < height; ++y)
          for (int x = 0; x < width; ++x)
            for (int c = 0; c < channels; ++c) {
              const int sx = (flip ? width - 1 - x : x) + left, sy = y + top;
              const bool inside = sx >= 0 && sx < width && sy >= 0 && sy < height;
              const uint8_t wanted = inside ? picture.row(sy)[sx * channels + c] : 0;
              ASSERT_EQ(uint8_t(got[size_t((y * width + x) * channels + c)]), wanted);
            }
      }
      EXPECT_GT(flips, 60);
      EXPECT_LT(flips, 140);
    }
  }
}

// Behind a resize of the short side: every crop of the resized picture comes, none leaves it.
TEST(PadCrop, CutsTheResizedPicture) {
  const Image picture = make_picture(30, 20, 3, 5);
  Augmentation a;
  a.mode = Augmentation::Mode::pad_crop;
  a.padding = 0;
  a.resize_short = 10;
  Transformer transformer(a, 8, 9, 3);
  Image resized;
  Resizer().resize(picture.view(), 15, 10, Filter::bilinear, resized);
  std::set<std::pair<int, int>> places;
  for (uint64_t i = 0; i < 400; ++i) {
    const std::string got = finish(transformer, picture, i, 8 * 9 * 3);
    RandomStream random(11, 2, i);
    const int top = int(random.below(3)), left = int(random.below(7));
    places.insert({top, left});
    for (int y = 0; y < 8; ++y)
      ASSERT_EQ(std::memcmp(got.data() + y * 27, resized.row(top + y) + left * 3, 27), 0);
  }
  EXPECT_EQ(places.size(), 21u);

  a.resize_short = 7;
  Transformer small(a, 8, 9, 3);
  const Error error = error_of([&] { small.prepare(picture); });
  EXPECT_EQ(error.code(), StatusCode::invalid_data);
  EXPECT_NE(std::string(error.what()).find("larger short side"), std::string::npos);
  a.padding = 1;
  EXPECT_NO_THROW(Transformer(a, 8, 9, 3).prepare(picture));
}

TEST(Resize, TakesAnySizeToTheModels) {
  const Image picture = make_picture(30, 20, 3, 5);
  Augmentation a;
  a.mode = Augmentation::Mode::resize;
  Transformer transformer(a, 12, 9, 3);
  Image wanted;
  Resizer().resize(picture.view(), 9, 12, Filter::bilinear, wanted);
  const std::string got = finish(transformer, picture, 0, wanted.bytes());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.bytes()), 0);
}

TEST(Flip, MirrorsRows) {
  const Image picture = make_picture(6, 4, 3, 9);
  Augmentation a;
  a.flip = 1.0f;
  Transformer transformer(a, 4, 6, 3);
  const std::string got = finish(transformer, picture, 0, picture.bytes());
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 6; ++x)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(uint8_t(got[size_t((y * 6 + x) * 3 + c)]), picture.row(y)[(5 - x) * 3 + c]);
}

TEST(Eval, LeavesTheExactSizeAlone) {
  const Image picture = make_picture(32, 32, 3, 1);
  Transformer transformer(Augmentation::eval(), 32, 32, 3);
  EXPECT_EQ(&transformer.prepare(picture), &picture);
  const Image other = make_picture(40, 33, 3, 1);
  EXPECT_EQ(transformer.prepare(other).width(), 32);
}

TEST(None, RefusesAnotherSize) {
  Transformer transformer(Augmentation{}, 32, 32, 3);
  const Image picture = make_picture(31, 32, 3, 1);
  const Error error = error_of([&] { transformer.prepare(picture); });
  EXPECT_EQ(error.code(), StatusCode::invalid_data);
  EXPECT_NE(std::string(error.what()).find("31 x 32"), std::string::npos);
}

TEST(Augmentation, NamesTheFieldThatIsWrong) {
  const auto reason = [](auto change) {
    Augmentation a;
    change(a);
    return std::string(error_of([&] { a.validate(); }).what());
  };
  EXPECT_NE(reason([](Augmentation& a) { a.flip = 2; }).find("flip"), std::string::npos);
  EXPECT_NE(reason([](Augmentation& a) { a.min_scale = 0; }).find("min_scale"), std::string::npos);
  EXPECT_NE(reason([](Augmentation& a) { a.min_ratio = 2; }).find("min_ratio"), std::string::npos);
  EXPECT_NE(reason([](Augmentation& a) { a.padding = -1; }).find("padding"), std::string::npos);
  EXPECT_NE(reason([](Augmentation& a) { a.resize_short = -1; }).find("resize_short"), std::string::npos);
  EXPECT_NE(reason([](Augmentation& a) { a.flip = std::nanf(""); }).find("flip"), std::string::npos);
}

TEST(Normalization, IsFoundByName) {
  EXPECT_EQ(find_normalization("imagenet")->mean[0], 0.485f);
  EXPECT_EQ(find_normalization("cifar10")->std[2], 0.2616f);
  EXPECT_EQ(find_normalization("half")->mean[1], 0.5f);
  EXPECT_EQ(find_normalization("none")->std[0], 1.0f);
  EXPECT_EQ(find_normalization("other"), nullptr);
}

}  // namespace
}  // namespace ren::data::test
