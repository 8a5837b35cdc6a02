// SPDX-License-Identifier: Apache-2.0
// The stream of every kind of source: the same bytes for any number of threads, and from the middle of an
// epoch.
#include <array>
#include <filesystem>

#include "data/loader_support.h"
#include "data/pack/pack.h"

namespace ren::data::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBatch = 7;  // 45 samples: six full batches and one of three
constexpr int64_t kBatches = 7;

Step with_values(StepKind kind, std::array<double, Step::kMostValues> values) {
  Step step = Step::with_defaults(kind);
  step.values = values;
  return step;
}

LoaderOptions plain(int64_t side) {
  LoaderOptions o = training(kBatch);
  o.height = o.width = side;
  o.cache_bytes = 0;
  o.threads = 1;
  return o;
}

// Every transform there is, in one list.
LoaderOptions transformed(int64_t side) {
  LoaderOptions o = plain(side);
  o.augmentation.steps = {Step::with_defaults(StepKind::vertical_flip),
                          with_values(StepKind::color_jitter, {0.4, 0.4, 0.4, 0.1}),
                          Step::with_defaults(StepKind::random_grayscale),
                          with_values(StepKind::gaussian_blur, {3, 0.1, 2}),
                          Step::with_defaults(StepKind::rand_augment),
                          Step::with_defaults(StepKind::trivial_augment_wide),
                          Step::with_defaults(StepKind::auto_contrast),
                          Step::with_defaults(StepKind::random_erasing)};
  return o;
}

class StreamTest : public ::testing::TestWithParam<const char*> {
 protected:
  StreamTest() {
    const std::string kind = GetParam();
    uri_ = folder_.path("set." + kind);
    if (kind == "folder") {
      for (const auto& [name, bytes] : small_set()) folder_.write("set.folder/" + name, bytes);
    } else if (kind == "zip" || kind == "deflated.zip") {
      write_zip(uri_, small_set(), kind != "zip");
    } else if (kind == "tar") {
      folder_.write("set.tar", tar_of(small_set()));
    } else if (kind == "samples.tar") {
      folder_.write("set.samples.tar", tar_of(samples()));
    } else if (kind == "csv") {
      std::string list;
      for (const auto& [name, bytes] : small_set()) {
        folder_.write("pictures/" + name, bytes);
        list += fmt::format("pictures/{},{}\n", name, name.substr(0, 1));
      }
      folder_.write("set.csv", list);
    } else if (kind == "dts") {
      write_zip(folder_.path("source.zip"), small_set());
      pack_dataset(open_dataset(folder_.path("source.zip")), uri_, {}, {});
    } else if (kind == "idx") {
      folder_.write("set.idx/train-images-idx3-ubyte", idx_images(kSamples, 28, 28));
      std::string labels;
      for (int i = 0; i < kSamples; ++i) labels += char(i % 10);
      folder_.write("set.idx/train-labels-idx1-ubyte", idx_labels(labels));
    } else {
      folder_.write("set.cifar/data_batch_1.bin", cifar_ten(0, kSamples));
    }
    set_ = open_dataset(uri_);
  }

  static Files samples() {
    Files files;
    int i = 0;
    for (const auto& [name, bytes] : small_set()) {
      files.emplace_back(fmt::format("{:04}.jpg", i), bytes);
      files.emplace_back(fmt::format("{:04}.cls", i++), name.substr(0, 1));
    }
    return files;
  }

  TemporaryFolder folder_;
  std::string uri_;
  Dataset set_;
};

TEST_P(StreamTest, IsTheSameForAnyNumberOfThreads) {
  ASSERT_EQ(set_.train().size(), kSamples);
  for (const LoaderOptions& base : {plain(16), transformed(16)}) {
    const std::vector<Taken> wanted = epochs_of(set_.train(), base, 2);
    ASSERT_EQ(wanted.size(), size_t(2 * kBatches));
    EXPECT_NE(wanted[0].images, wanted[kBatches].images);  // the epochs differ
    for (const int threads : {2, 7, 16}) {
      LoaderOptions o = base;
      o.threads = threads;
      ASSERT_EQ(epochs_of(set_.train(), o, 2), wanted) << threads << ' ' << o.augmentation.text();
    }
  }
}

TEST_P(StreamTest, GoesOnInMidEpoch) {
  const LoaderOptions base = transformed(16);
  const std::vector<Taken> all = epochs_of(set_.train(), base, 2);
  for (const int threads : {1, 7})
    for (const int64_t batch : {1, 3, 6}) {
      LoaderOptions o = base;
      o.threads = threads;
      const auto resumed = make_loader(set_.train(), o);
      std::vector<Taken> rest = epoch_of(*resumed, 0, batch);
      for (Taken& taken : epoch_of(*resumed, 1)) rest.push_back(std::move(taken));
      EXPECT_EQ(rest, std::vector<Taken>(all.begin() + batch, all.end())) << threads << ' ' << batch;
    }
}

// What lies in one file is read from that file to the end, also when its name is gone or another's: else a
// new archive's pictures would get the old one's labels, by chance, as threads happen to open it.
TEST_P(StreamTest, IsOfTheFilesThatWereOpened) {
  LoaderOptions o = plain(16);
  const std::vector<Taken> wanted = epochs_of(set_.train(), o, 2);
  const Dataset fresh = open_dataset(uri_);  // of which nothing has been read
  const bool is_folder_of_pictures = uri_.ends_with(".folder") || uri_.ends_with(".csv");
  o.threads = 16;
  for (const char* what : {"gone", "replaced"}) {
    if (what == std::string("gone"))
      fs::rename(folder_.path(), folder_.path() + "-gone");
    else
      folder_.write(fs::path(uri_).filename(), std::string(100'000, 'x'));
    const std::array<const Dataset*, 2> sets = {&set_, &fresh};
    for (const Dataset* set : sets) {
      if (is_folder_of_pictures)
        EXPECT_EQ(error_of([&] { epochs_of(set->train(), o, 1); }).code(), StatusCode::not_found) << what;
      else
        EXPECT_EQ(epochs_of(set->train(), o, 2), wanted) << what;
    }
  }
  fs::remove_all(folder_.path() + "-gone");
}

INSTANTIATE_TEST_SUITE_P(Sources, StreamTest,
                         ::testing::Values("folder", "zip", "deflated.zip", "tar", "samples.tar", "csv",
                                           "dts", "idx", "cifar"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace ren::data::test
