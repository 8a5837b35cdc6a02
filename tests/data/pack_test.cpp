// SPDX-License-Identifier: Apache-2.0
// Packing: what goes in comes out, whatever the source and the threads.
#include <filesystem>
#include <fstream>

#include "data/augment/transform.h"
#include "data/pack_support.h"
#include "data/source/dts_format.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

TEST_F(Pack, RoundTripFromEverySource) {
  const Files files = class_folders();
  write_files(folder_, {{"folder/", ""}});
  for (const auto& [name, content] : files) folder_.write("folder/" + name, content);
  round_trip(folder_.path("folder"));
  write_zip(folder_.path("a.zip"), files, true);
  round_trip(folder_.path("a.zip"));
  round_trip(folder_.write("a.tar", tar_of(files)));
  Files samples;
  for (int i = 0; i < 6; ++i) {
    samples.emplace_back(fmt::format("{}.jpg", i), jpeg_of(9, 9, uint32_t(i)));
    samples.emplace_back(fmt::format("{}.cls", i), i % 2 ? "b" : "a");
  }
  folder_.write("w/train-0.tar", tar_of(samples));
  folder_.write("w/val-0.tar", tar_of(samples));
  round_trip(folder_.path("w"));
  std::string list = "path,label,split\n";
  for (const auto& [name, content] : files)
    list += fmt::format("\"{}\",{},{}\n", name, name[name.size() - 5] % 2, name.substr(0, name.find('/')));
  round_trip(folder_.write("folder/list.csv", list));
  folder_.write("idx/train-images-idx3-ubyte", idx_images(4));
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels(std::string("\0\1\1\0", 4)));
  folder_.write("idx/t10k-images-idx3-ubyte", idx_images(2));
  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels(std::string("\1\0", 2)));
  round_trip(folder_.path("idx"));
  folder_.write("cifar/data_batch_1.bin", cifar_ten(0, 20));
  folder_.write("cifar/test_batch.bin", cifar_ten(3, 10));
  round_trip(folder_.path("cifar"));
  // and from a pack
  pack(folder_.path("a.zip"), folder_.path("first.dts"));
  round_trip(folder_.path("first.dts"));
}

TEST_F(Pack, ThreadsDoNotChangeTheFile) {
  const std::string source = folder_source(9);
  for (const int short_side : {0, 14}) {
    std::string first;
    for (const int threads : {1, 2, 7}) {
      PackOptions o;
      o.threads = threads, o.short_side = short_side;
      pack(source, target(), o);
      const std::string bytes = read_file(target());
      if (first.empty()) first = bytes;
      EXPECT_TRUE(first == bytes) << threads;
    }
  }
}

TEST_F(Pack, ResizesAsPillowAndKeepsSmallOnes) {
  folder_.write("s/a/large.jpg", jpeg_of(60, 40, 1));
  folder_.write("s/a/small.jpg", jpeg_of(90, 20, 2));  // its short side is no longer than that
  folder_.write("s/b/gray.jpg", encode_jpeg(make_picture(50, 70, 1, 3), {90, 1, 1}));
  folder_.write("s/b/rgb.png", fixture("rgb.png"));
  PackOptions o;
  o.short_side = 20, o.quality = 100;
  EXPECT_GE(pack(folder_.path("s"), target(), o).resized, 2);
  const Dataset set = open_dataset(target());
  const auto content = [&](int64_t sample) {
    std::string bytes;
    set.train().store->read(set.train().files[size_t(sample)], bytes);
    return bytes;
  };
  EXPECT_EQ(content(1), jpeg_of(90, 20, 2));
  Decoder decoder;
  Image before, expected, after;
  decoder.decode(jpeg_of(60, 40, 1), {}, before);
  Resizer().resize(before.view(), 30, 20, Filter::bilinear, expected);
  const PictureHeader header = decoder.look(content(0));
  EXPECT_EQ(header.width, 30);
  EXPECT_EQ(header.height, 20);
  EXPECT_FALSE(header.gray);
  // Luma survives quality 100 to a rounding; chroma at half the size does not, so a gray picture is compared.
  decoder.decode(content(2), {.channels = 1}, after);
  EXPECT_TRUE(decoder.look(content(2)).gray);
  ASSERT_EQ(after.width(), 20);
  ASSERT_EQ(after.height(), 28);
  decoder.decode(encode_jpeg(make_picture(50, 70, 1, 3), {90, 1, 1}), {.channels = 1}, before);
  Resizer().resize(before.view(), 20, 28, Filter::bilinear, expected);
  // Quality 100 has quantisation steps of 1 in 64 coefficients: rounding each by up to a half, and the pixels
  // at last, leaves a pixel within 2 or 3 of its value.
  for (size_t i = 0; i < after.bytes(); ++i) EXPECT_NEAR(after.data()[i], expected.data()[i], 3) << i;
}

TEST_F(Pack, ResizesBarePixels) {
  folder_.write("cifar/data_batch_1.bin", cifar_ten(0, 10));
  PackOptions o;
  o.short_side = 16;
  EXPECT_EQ(pack(folder_.path("cifar"), target(), o).resized, 10);
  const Dataset set = open_dataset(target());
  EXPECT_FALSE(set.train().store->pixel_form().is_raw());
  std::string bytes;
  set.train().store->read(0, bytes);
  EXPECT_EQ(Decoder().look(bytes).width, 16);
  o.short_side = 32;  // nothing is larger
  EXPECT_EQ(pack(folder_.path("cifar"), target(), o).resized, 0);
  EXPECT_TRUE(open_dataset(target()).train().store->pixel_form().is_raw());
}

TEST_F(Pack, BadPictures) {
  const std::string source = folder_source();
  folder_.write("train/cat/cat 1.jpg", jpeg_of(30, 30, 1).substr(0, 400));
  folder_.write("train/bird/bird 0.jpg", "no picture");
  folder_.write("val/cat/cat 3.jpg", "");
  const Error error = error_of([&] { pack(source, target()); });
  EXPECT_EQ(error.code(), StatusCode::invalid_data);
  EXPECT_NE(std::string(error.what()).find("train/bird/bird 0.jpg': the content is no picture"),
            std::string::npos)
      << error.what();
  EXPECT_FALSE(exists("out/a.dts"));
  EXPECT_FALSE(exists("out/a.dts.part"));  // the first one was bad: nothing is in it
  PackOptions o;
  o.bad_files = BadFiles::skip;
  PackReport report = pack(source, target(), o);
  EXPECT_EQ(report.pictures, 21);
  EXPECT_EQ(report.bad_files, 3);
  ASSERT_EQ(report.bad.size(), 3u);
  EXPECT_NE(report.bad[1].find("cat 1.jpg': the JPEG file is truncated"), std::string::npos);
  const std::string whole = read_file(target());
  EXPECT_EQ(open_dataset(target()).train().size(), 10);
  // Stopped behind bad ones, the second run tells all of them, too.
  fs::remove(target());
  error_of([&] {
    pack(source, target(), o,
         [](const JobProgress& p) { return p.phase != JobProgress::Phase::packing || p.done < 12; });
  });
  report = pack(source, target(), o);
  EXPECT_GT(report.continued, 5);
  EXPECT_EQ(report.bad_files, 3);
  EXPECT_TRUE(read_file(target()) == whole);
  // A class without a good picture would be one that can't be trained.
  for (int i = 0; i < 4; ++i) folder_.write(fmt::format("train/cat/cat {}.jpg", i), "bad");
  EXPECT_NE(std::string(error_of([&] { pack(source, target(), o); }).what())
                .find("all pictures of the class 'cat'"),
            std::string::npos);
}

TEST_F(Pack, MixedForms) {
  folder_.write("cifar/data_batch_1.bin", cifar_ten(0, 10));
  Files files;
  for (int i = 0; i < 10; ++i) files.emplace_back(fmt::format("v/{}/a.jpg", i), jpeg_of(32, 32, uint32_t(i)));
  write_files(folder_, files);
  DatasetOptions options;
  options.validation_uri = folder_.path("v");
  const Dataset set = open_dataset(folder_.path("cifar"), options);
  EXPECT_EQ(error_of([&] { pack_dataset(set, target(), {}, {}); }).code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace ren::data::test
