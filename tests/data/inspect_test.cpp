// SPDX-License-Identifier: Apache-2.0
// Looking into data sets: counts, sizes, what is broken, and the contact sheet.
#include "data/inspect/inspect.h"

#include "data/encode/encode.h"
#include "data/pack/pack.h"
#include "data/support.h"

namespace ren::data::test {
namespace {

class Inspect : public ::testing::Test {
 protected:
  Findings look(const std::string& uri, bool quick = false, int threads = 2) {
    return inspect_dataset(open_dataset(folder_.path(uri)), {quick, threads}, {});
  }
  TemporaryFolder folder_;
};

// A JPEG file whose size stands behind `bytes` of what an application left there.
std::string with_segment(const std::string& jpeg, size_t bytes) {
  std::string segments;
  for (; bytes > 0; bytes -= std::min<size_t>(bytes, 60000)) {
    const size_t size = std::min<size_t>(bytes, 60000) + 2;
    segments += "\xFF\xEB" + std::string{char(size >> 8), char(size)} + std::string(size - 2, 'x');
  }
  return jpeg.substr(0, 2) + segments + jpeg.substr(2);
}

TEST_F(Inspect, CountsSizesAndFormats) {
  folder_.write("s/train/a/1.jpg", jpeg_of(10, 40, 1));
  folder_.write("s/train/a/2.jpg", jpeg_of(20, 30, 2));
  folder_.write("s/train/b/3.png", encode_png_file(make_picture(30, 20, 1, 3).view()));
  folder_.write("s/val/a/4.jpg", with_segment(jpeg_of(40, 10, 4), 1'500'000));
  folder_.write("s/val/b/5.png", fixture("rgba_16bit.png"));
  const Image rgba = [] {
    Image image;
    Decoder().decode(fixture("rgba_16bit.png"), {}, image);
    return image;
  }();
  for (const bool quick : {false, true}) {
    const Findings f = look("s", quick);
    EXPECT_EQ(f.pictures, 5);
    EXPECT_EQ(f.broken_files, 0);
    EXPECT_EQ(f.classes, (std::vector<std::string>{"a", "b"}));
    ASSERT_EQ(f.splits.size(), 2u);
    EXPECT_EQ(f.splits[0].name, "train");
    EXPECT_EQ(f.splits[0].by_class, (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(f.splits[1].by_class, (std::vector<int64_t>{1, 1}));
    EXPECT_EQ(f.formats, (std::map<std::string, int64_t>{{"JPEG", 3}, {"PNG", 2}}));
    EXPECT_EQ(f.gray, 1);
    EXPECT_EQ(f.width.least, std::min(10, rgba.width()));
    EXPECT_EQ(f.height.most, std::max(40, rgba.height()));
    std::vector<int64_t> widths = {10, 20, 30, 40, rgba.width()};
    std::sort(widths.begin(), widths.end());
    EXPECT_EQ(f.width.median, widths[2]);
    EXPECT_GT(f.bytes.most, 1'500'000);
  }
}

TEST_F(Inspect, WhatIsBroken) {
  for (int i = 0; i < 6; ++i) {
    folder_.write(fmt::format("s/a/{}.jpg", i), jpeg_of(16, 16, uint32_t(i)));
    folder_.write(fmt::format("s/b/{}.jpg", i), jpeg_of(16, 16, uint32_t(i)));
  }
  folder_.write("s/a/1.jpg", jpeg_of(64, 64, 1).substr(0, 900));
  folder_.write("s/b/2.jpg", "GIF89a and so on");
  folder_.write("s/b/4.jpg", "");
  for (const int threads : {1, 2, 7}) {
    const Findings f = look("s", false, threads);
    EXPECT_EQ(f.broken_files, 3);
    EXPECT_EQ(f.splits[0].broken, 3);
    ASSERT_EQ(f.broken.size(), 3u);
    EXPECT_EQ(f.broken[0].path, folder_.path("s/a/1.jpg"));
    EXPECT_EQ(f.broken[0].reason, "the JPEG file is truncated");
    EXPECT_NE(f.broken[1].reason.find("the content is GIF"), std::string::npos);
    EXPECT_EQ(f.broken[2].reason, "the file is empty");
    EXPECT_EQ(f.formats, (std::map<std::string, int64_t>{{"JPEG", 9}}));
  }
  EXPECT_EQ(look("s", true).broken_files, 2);  // the header of the cut one is whole
}

TEST_F(Inspect, EverySourceHasTheSameFindings) {
  folder_.write("cifar/data_batch_1.bin", cifar_ten(0, 20));
  const Findings f = look("cifar"), quick = look("cifar", true);
  EXPECT_EQ(f.formats, (std::map<std::string, int64_t>{{"bare pixels", 20}}));
  EXPECT_EQ(f.width.median, 32);
  EXPECT_EQ(f.bytes.most, 3072);
  EXPECT_EQ(quick.bytes.most, 3072);
  pack_dataset(open_dataset(folder_.path("cifar")), folder_.path("a.dts"), {}, {});
  EXPECT_EQ(look("a.dts").formats, f.formats);
  EXPECT_EQ(look("a.dts").splits[0].by_class, f.splits[0].by_class);
}

TEST_F(Inspect, CanBeStopped) {
  folder_.write("cifar/data_batch_1.bin", cifar_ten(0, 20));
  const auto stop = [](const JobProgress& p) { return p.done < 5; };
  EXPECT_EQ(error_of([&] { inspect_dataset(open_dataset(folder_.path("cifar")), {}, stop); }).code(),
            StatusCode::cancelled);
}

// The sheet holds what the loader gives, picture by picture, in a frame.
TEST_F(Inspect, SheetShowsWhatTrainingSees) {
  for (int i = 0; i < 5; ++i) {
    folder_.write(fmt::format("s/a/{}.jpg", i), jpeg_of(30, 20, uint32_t(i)));
    folder_.write(fmt::format("s/b/{}.jpg", i), jpeg_of(20, 30, uint32_t(i)));
  }
  const Dataset set = open_dataset(folder_.path("s"));
  LoaderOptions o;
  o.batch = 7, o.height = 12, o.width = 16, o.shuffle = true, o.seed = 5;
  o.augmentation = Augmentation::train(12, 16);
  Image sheet;
  Decoder().decode(contact_sheet(set.train(), o), {}, sheet);
  ASSERT_EQ(sheet.width(), 3 * 18 + 2);
  ASSERT_EQ(sheet.height(), 3 * 14 + 2);
  const auto loader = make_loader(set.train(), o);
  loader->start_epoch(0, 0);
  BatchView batch;
  ASSERT_TRUE(loader->next(batch));
  const auto* const pixels = static_cast<const uint8_t*>(batch.images);
  for (int i = 0; i < 7; ++i)
    for (int y = 0; y < 12; ++y)
      EXPECT_EQ(std::memcmp(sheet.row(2 + i / 3 * 14 + y) + (2 + i % 3 * 18) * 3,
                            pixels + (size_t(i) * 12 + size_t(y)) * 16 * 3, 16 * 3),
                0)
          << i << " " << y;
  EXPECT_EQ(sheet.row(0)[0], 48);
  o.batch = 1000;  // all ten
  Decoder().decode(contact_sheet(set.train(), o), {}, sheet);
  EXPECT_EQ(sheet.width(), 4 * 18 + 2);
  o.height = o.width = 60000;
  EXPECT_EQ(error_of([&] { contact_sheet(set.train(), o); }).code(), StatusCode::invalid_argument);
}

TEST_F(Inspect, EncodedPngIsReadBackExactly) {
  for (const int channels : {1, 3}) {
    const Image picture = make_picture(37, 23, channels, 9);
    Image back;
    Decoder().decode(encode_png_file(picture.view()), {.channels = channels}, back);
    ASSERT_EQ(back.bytes(), picture.bytes());
    EXPECT_EQ(std::memcmp(back.data(), picture.data(), picture.bytes()), 0);
  }
  Image large(65501, 1, 1);
  std::memset(large.data(), 0, large.bytes());
  EXPECT_EQ(error_of([&] { encode_jpeg_file(large.view(), 90); }).code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace ren::data::test
