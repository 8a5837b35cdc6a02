// SPDX-License-Identifier: Apache-2.0
// MNIST's IDX and CIFAR's binary files, and the pixels that come of them.
#include <zlib.h>

#include "data/dataset.h"
#include "data/decode/formats.h"
#include "data/mutation.h"
#include "data/support.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"

namespace ren::data::test {
namespace {

using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// All pictures of a split as the loader gives them, unchanged in size.
std::vector<uint8_t> load(const Split& split, int height, int width, int channels) {
  LoaderOptions o;
  o.batch = split.size(), o.height = height, o.width = width, o.channels = channels, o.threads = 2;
  o.augmentation.mode = Augmentation::Mode::none;
  const auto loader = make_loader(split, o);
  loader->start_epoch(0, 0);
  BatchView view;
  EXPECT_TRUE(loader->next(view));
  const auto* const bytes = static_cast<const uint8_t*>(view.images);
  return {bytes, bytes + split.size() * height * width * channels};
}

class Binary : public ::testing::Test {
 protected:
  void expect_broken(const std::string& uri, const Names& texts, StatusCode code = StatusCode::invalid_data) {
    const Error error = error_of([&] { open_dataset(uri); });
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << "'" << text << "' in: " << error.what();
  }
  void write_mnist(const std::string& folder, bool compressed = false) {
    const auto write = [&](const std::string& name, const std::string& bytes) {
      folder_.write(folder + name + (compressed ? ".gz" : ""), compressed ? gzip(bytes) : bytes);
    };
    write("train-images-idx3-ubyte", idx_images(6));
    write("train-labels-idx1-ubyte", idx_labels(std::string("\2\1\0\2\1\0", 6)));
    write("t10k-images-idx3-ubyte", idx_images(2));
    write("t10k-labels-idx1-ubyte", idx_labels(std::string("\0\1", 2)));
  }
  TemporaryFolder folder_;
};

TEST_F(Binary, MnistPlainCompressedAndBelowFolders) {
  write_mnist("plain/");
  write_mnist("packed/", true);
  write_mnist("both/", true);
  write_mnist("both/");
  write_mnist("deep/MNIST/raw/");
  for (const char* name : {"plain", "packed", "both/", "deep"}) {
    SCOPED_TRACE(name);
    const Dataset set = open_dataset(folder_.path(name));
    EXPECT_EQ(set.classes, (Names{"0", "1", "2"}));
    EXPECT_EQ(set.train().labels, (Labels{2, 1, 0, 2, 1, 0}));
    EXPECT_EQ(set.validation()->name, "test");
    EXPECT_EQ(set.validation()->labels, (Labels{0, 1}));
    const std::vector<uint8_t> gray = load(set.train(), 5, 4, 1), rgb = load(set.train(), 5, 4, 3);
    for (int i = 0; i < 6; ++i)
      for (int k = 0; k < 20; ++k) {
        ASSERT_EQ(gray[size_t(i * 20 + k)], pixel_of(i, k));
        for (int c = 0; c < 3; ++c) ASSERT_EQ(rgb[size_t((i * 20 + k) * 3 + c)], pixel_of(i, k));
      }
    EXPECT_EQ(load(*set.validation(), 5, 4, 1), std::vector<uint8_t>(gray.begin(), gray.begin() + 40));
  }
  EXPECT_EQ(open_dataset(folder_.path("plain")).train().path(3),
            folder_.path("plain/train-images-idx3-ubyte/00003"));
}

TEST_F(Binary, OneIdxFileAndPrediction) {
  write_mnist("m/");
  EXPECT_EQ(open_dataset(folder_.path("m/train-images-idx3-ubyte")).train().labels,
            (Labels{2, 1, 0, 2, 1, 0}));
  EXPECT_EQ(open_pictures(folder_.write("alone", idx_images(3))).size(), 3);
  EXPECT_EQ(open_pictures(folder_.write("alone2", gzip(idx_images(3)))).size(), 3);
  EXPECT_EQ(open_pictures(folder_.path("m")).size(), 8);
  folder_.write("emnist/emnist-a-train-images-idx3-ubyte", idx_images(2));
  folder_.write("emnist/emnist-b-train-images-idx3-ubyte", idx_images(2));
  expect_broken(folder_.path("emnist"), {"several data sets", "name one file"});
}

TEST_F(Binary, IdentityTellsPixelsApart) {
  write_mnist("a/");
  write_mnist("b/");
  write_mnist("c/", true);
  std::string changed = idx_images(6);
  changed[40] ^= 1;
  folder_.write("b/train-images-idx3-ubyte", changed);
  const auto facts = [&](const char* name) {
    LoaderOptions o;
    o.batch = 2, o.height = o.width = 8, o.channels = 1;
    return make_loader(open_dataset(folder_.path(name)).train(), o)->identity().at("picture checksums");
  };
  EXPECT_EQ(facts("a"), facts("c"));
  EXPECT_NE(facts("a"), facts("b"));
}

TEST_F(Binary, BrokenIdx) {
  const std::string images = idx_images(6), labels = idx_labels(std::string("\2\1\0\2\1\0", 6));
  const auto broken = [&](const std::string& i, const std::string& l, const Names& texts) {
    folder_.write("m/train-images-idx3-ubyte", i);
    folder_.write("m/train-labels-idx1-ubyte", l);
    expect_broken(folder_.path("m"), texts);
  };
  broken(images.substr(0, 100), labels,
         {"train-images-idx3-ubyte' is cut off", "136 bytes", "copy it again"});
  broken(images.substr(0, 10), labels, {"cut off"});
  broken("", labels, {"begins 00000000"});
  broken(images + "x", labels, {"has more than"});
  broken(images, labels.substr(0, 10), {"train-labels-idx1-ubyte' is cut off"});
  broken(labels, images, {"no IDX file of pictures", "00000801"});
  broken(images, images, {"no IDX file of labels", "00000803"});
  broken(images, idx_labels("\1"), {"has 1 labels for the 6 pictures"});
  broken(images, idx_labels(std::string("\3\1\0\3\1\0", 6)), {"no pictures: '2'"});
  broken(idx_images(0), idx_labels(""), {"has 0 pictures"});
  broken(idx_images(6, 0, 4), labels, {"0 x 4"});
  const std::string packed = gzip(images);
  broken(packed.substr(0, packed.size() / 2), labels, {"is cut off"});
  broken(packed.substr(0, 12) + "\xFF\xFF\xFF" + packed.substr(15), labels, {"train-images-idx3-ubyte"});
  broken(gzip(images.substr(0, 60)), labels, {"fewer than the 136 bytes"});
  broken(gzip(images + std::string(1 << 20, 'x')), labels, {"has more than"});
  std::filesystem::remove(folder_.path("m/train-labels-idx1-ubyte"));
  folder_.write("m/train-images-idx3-ubyte", images);
  expect_broken(folder_.path("m"), {"labels of", "missing", "train-labels-idx1-ubyte"},
                StatusCode::not_found);
  expect_broken(folder_.write("x.tar.gz", gzip(tar_of({{"a/1.jpg", "x"}}))), {"x.tar.gz", "unpack"},
                StatusCode::unsupported);
  expect_broken(folder_.write("pictures", images), {"can't be found by its name"});
}

TEST_F(Binary, CifarTen) {
  for (int i = 1; i <= 2; ++i) folder_.write(fmt::format("r/c/data_batch_{}.bin", i), cifar_ten(i * 10, 10));
  folder_.write("r/c/test_batch.bin", cifar_ten(0, 4));
  EXPECT_EQ(open_dataset(folder_.path("r")).classes[9], "9");
  folder_.write("r/c/batches.meta.txt", "j\r\ni\nh\ng\nf\ne\nd\nc\nb\na\n\n");
  const Dataset set = open_dataset(folder_.path("r"));
  EXPECT_EQ(set.classes, (Names{"j", "i", "h", "g", "f", "e", "d", "c", "b", "a"}));  // as they are numbered
  EXPECT_EQ(set.train().size(), 20);
  EXPECT_EQ(set.train().path(11), folder_.path("r/c/data_batch_2.bin/00001"));
  EXPECT_EQ(set.validation()->labels, (Labels{0, 1, 2, 3}));
  const std::vector<uint8_t> rgb = load(set.train(), 32, 32, 3), gray = load(set.train(), 32, 32, 1);
  for (int i = 0; i < 20; ++i)
    for (int k = 0; k < 1024; ++k) {
      const uint8_t r = pixel_of(10 + i, k), g = pixel_of(10 + i, 1024 + k), b = pixel_of(10 + i, 2048 + k);
      const size_t at = size_t(i * 1024 + k);
      ASSERT_EQ(rgb[3 * at], r);
      ASSERT_EQ(rgb[3 * at + 1], g);
      ASSERT_EQ(rgb[3 * at + 2], b);
      ASSERT_EQ(gray[at], luma(r, g, b));
    }
  EXPECT_EQ(open_dataset(folder_.path("r/c/test_batch.bin"), {"", true, false}).train().size(), 4);
  EXPECT_EQ(open_pictures(folder_.path("r/c/test_batch.bin")).size(), 4);
}

TEST_F(Binary, CifarHundred) {
  std::string train;
  for (int i = 0; i < 100; ++i) train += cifar_record({char(i % 20), char(99 - i)}, i);
  folder_.write("c/train.bin", train);
  folder_.write("c/test.bin", cifar_record("\1\7", 3));
  const Dataset set = open_dataset(folder_.path("c"));
  EXPECT_EQ(set.classes.size(), 100u);
  EXPECT_EQ(set.train().labels[0], 99);  // the fine label
  EXPECT_EQ(set.find("test")->labels, (Labels{7}));
  EXPECT_EQ(load(*set.find("test"), 32, 32, 3)[1], pixel_of(3, 1024));
}

// Pixels are pixels, whatever they look like.
TEST_F(Binary, PixelsThatLookLikeAJpegFile) {
  std::string bytes = cifar_ten(0, 10);
  bytes.replace(1, 3, "\xFF\xD8\xFF");
  bytes.replace(3073 + 1, 8, "\x89PNG\r\n\x1A\n");
  const Dataset set = open_dataset(folder_.write("test_batch.bin", bytes));
  const std::vector<uint8_t> rgb = load(set.train(), 32, 32, 3);
  EXPECT_EQ(rgb[0], 0xFF);
  EXPECT_EQ(rgb[3], 0xD8);
  EXPECT_EQ(rgb[3072 + 3], 'P');
  LoaderOptions o;  // and for the path that decodes parts of JPEG files only
  o.batch = 10, o.height = o.width = 16, o.cache_bytes = 0, o.augmentation = Augmentation::train(224, 224);
  const auto loader = make_loader(set.train(), o);
  loader->start_epoch(0, 0);
  BatchView view;
  EXPECT_TRUE(loader->next(view));
}

TEST_F(Binary, BrokenCifar) {
  const std::string whole = cifar_ten(0, 10);
  const auto broken = [&](const std::string& bytes, const Names& texts) {
    folder_.write("c/data_batch_1.bin", bytes);
    expect_broken(folder_.path("c"), texts);
  };
  broken(whole.substr(0, 10000), {"data_batch_1.bin", "cut off", "10000 bytes"});
  broken("", {"data_batch_1.bin", "0 bytes"});
  std::string label = whole;
  label[3073 * 2] = 17;
  broken(label, {"data_batch_1.bin", "label is out of range: 17 in picture 2"});
  broken(cifar_ten(0, 9), {"no pictures: '9'"});
  folder_.write("c/batches.meta.txt", "a\nb\n");
  broken(whole, {"batches.meta.txt", "10 different class names of CIFAR-10"});
  folder_.write("p/data_batch_1", "pickle");
  folder_.write("p/batches.meta", "pickle");
  expect_broken(folder_.path("p"), {"Python version", "binary version"}, StatusCode::unsupported);
}

TEST_F(Binary, ShortenedWhileItIsUsed) {
  const std::string path = folder_.write("test_batch.bin", cifar_ten(0, 10));
  const Dataset set = open_dataset(path);
  std::filesystem::resize_file(path, 5000);
  std::string bytes;
  const Error error = error_of([&] { set.train().store->read(5, bytes); });
  EXPECT_NE(std::string(error.what()).find("test_batch.bin' was shortened"), std::string::npos)
      << error.what();
}

TEST_F(Binary, CutOffPixels) {
  DecodeOptions options;
  options.form = {2, 2, 3, false};
  Decoder decoder;
  Image image;
  const std::string bytes("\1\2\3\4\5\6\7", 7);
  EXPECT_EQ(error_of([&] { decoder.decode(bytes, options, image); }).code(), StatusCode::invalid_data);
  options.tolerate_damage = true;
  EXPECT_TRUE(decoder.decode(bytes, options, image).truncated);
  EXPECT_EQ(image.row(0)[5], 6);
  EXPECT_EQ(image.row(1)[1], 128);
}

TEST_F(Binary, MutatedIdxNeverCrash) {
  const std::string images = idx_images(3), labels = idx_labels(std::string("\0\1\1", 3));
  const std::string packed = gzip(images);
  expect_survives(4000, 6, {30, 100}, [&](uint64_t i, RandomStream& random) {
    std::string changed = i % 4 == 0   ? mutate(packed, random)
                          : i % 4 == 1 ? gzip(mutate(images, random))
                          : i % 4 == 2 ? mutate(images.substr(0, 16), random) + images.substr(16)
                                       : images;
    folder_.write("m/train-images-idx3-ubyte", changed);
    folder_.write("m/train-labels-idx1-ubyte", i % 4 == 3 ? mutate(labels, random) : labels);
    read_all(i % 8 < 4 ? open_pictures(folder_.path("m")) : open_dataset(folder_.path("m")).train());
  });
}

TEST_F(Binary, MutatedCifarNeverCrash) {
  const std::string whole = cifar_ten(0, 10);
  folder_.write("c/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  expect_survives(2000, 6, {30, 100}, [&](uint64_t i, RandomStream& random) {
    std::string changed = whole;
    if (i % 2)
      changed = mutate(whole, random);
    else
      changed[random.below(10) * 3073] = char(random.below(12));
    folder_.write("c/data_batch_1.bin", changed);
    read_all(open_dataset(folder_.path("c"), {"", true, false}));
  });
}

}  // namespace
}  // namespace ren::data::test
