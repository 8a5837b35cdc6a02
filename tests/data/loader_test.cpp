// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "data/loader_support.h"
#include "engine/base/file.h"
#include "engine/base/memory.h"

namespace ren::data::test {
namespace {

TEST_F(LoaderTest, SameBytesWhateverTheThreadsCacheAndPrefetch) {
  LoaderOptions augmented = training();
  augmented.augmentation.steps = {
      Step::with_defaults(StepKind::vertical_flip), Step::with_defaults(StepKind::trivial_augment_wide),
      Step::with_defaults(StepKind::rand_augment), Step::with_defaults(StepKind::random_erasing)};
  for (const LoaderOptions& base : {training(), evaluation(), augmented}) {
    LoaderOptions one = base;
    one.threads = 1;
    one.cache_bytes = 0;
    const std::vector<Taken> wanted = epochs_of(split(), one, 2);
    ASSERT_EQ(wanted.size(), 12u);
    for (const int threads : {1, 2, 5})
      for (const int64_t cache : {int64_t{0}, int64_t{20'000}, int64_t{1} << 30})
        for (const int prefetch : {1, 4}) {
          LoaderOptions o = base;
          o.threads = threads;
          o.cache_bytes = cache;
          o.prefetch = prefetch;
          ASSERT_EQ(epochs_of(split(), o, 2), wanted) << threads << ' ' << cache << ' ' << prefetch;
        }
  }
}

TEST_F(LoaderTest, SameBytesFromAZip) {
  const std::vector<Taken> wanted = epochs_of(split(), training(), 1);
  for (const bool compress : {false, true}) {
    const std::string path = folder_.path("set.zip");
    write_zip(path, small_set(), compress);
    const Dataset zip = open_dataset(path);
    LoaderOptions o = training();
    o.threads = 5;
    EXPECT_EQ(epochs_of(zip.train(), o, 1), wanted);
    // what both know agrees, so a training may go on from the archive of a folder
    auto archive = make_loader(zip.train(), o)->identity();
    EXPECT_EQ(archive.erase("picture checksums"), 1u);
    EXPECT_EQ(archive, make_loader(split(), o)->identity());
    std::filesystem::remove(path);
  }
}

TEST_F(LoaderTest, GoesOnInTheMiddleOfAnEpoch) {
  const auto loader = make_loader(split(), training());
  const std::vector<Taken> first = epoch_of(*loader, 0), second = epoch_of(*loader, 1);
  EXPECT_NE(first[0].images, second[0].images);
  for (const int64_t batch : {0, 1, 3, 5, 6}) {
    const auto other = make_loader(split(), training());
    const std::vector<Taken> tail(second.begin() + batch, second.end());
    EXPECT_EQ(epoch_of(*other, 1, batch), tail) << batch;
  }
  // The same loader jumping about, leaving epochs in the middle.
  BatchView view;
  for (const auto& [epoch, batch] : {std::pair{0, 2}, {1, 4}, {1, 4}, {0, 0}, {1, 5}, {0, 5}, {1, 0}}) {
    loader->start_epoch(epoch, batch);
    ASSERT_TRUE(loader->next(view));
    EXPECT_EQ(copy_of(view, *loader), (epoch == 0 ? first : second)[size_t(batch)]);
  }
  EXPECT_EQ(epoch_of(*loader, 1), second);
}

TEST_F(LoaderTest, EpochsHoldEverySampleOnceInAnotherOrder) {
  std::set<std::vector<uint32_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<uint32_t> order = epoch_order(kSamples, true, 42, epoch);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < kSamples; ++i) ASSERT_EQ(order[i], i);
  }
  EXPECT_EQ(orders.size(), 5u);
  EXPECT_NE(epoch_order(kSamples, true, 43, 0), epoch_order(kSamples, true, 42, 0));
  EXPECT_EQ(epoch_order(4, false, 1, 2), (std::vector<uint32_t>{0, 1, 2, 3}));

  const auto loader = make_loader(split(), evaluation());
  const std::vector<Taken> batches = epoch_of(*loader, 0);
  std::vector<int32_t> labels;
  for (const Taken& taken : batches) labels.insert(labels.end(), taken.labels.begin(), taken.labels.end());
  EXPECT_EQ(labels, split().labels);
}

// Each position is equally likely to get each sample.
TEST(EpochOrder, IsUniform) {
  constexpr int64_t n = 8, draws = 40000;
  std::array<std::array<int, n>, n> counts{};
  for (int64_t epoch = 0; epoch < draws; ++epoch) {
    const auto order = epoch_order(n, true, 7, epoch);
    for (size_t i = 0; i < n; ++i) ++counts[i][order[i]];
  }
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, draws / n, 350);  // five standard deviations
}

TEST_F(LoaderTest, LastBatch) {
  LoaderOptions o = training(8);
  EXPECT_EQ(make_loader(split(), o)->batches_per_epoch(), 6);
  EXPECT_EQ(epochs_of(split(), o, 1).back().labels.size(), 5u);
  o.last_batch = LastBatch::drop;
  const auto dropping = make_loader(split(), o);
  EXPECT_EQ(dropping->batches_per_epoch(), 5);
  EXPECT_EQ(dropping->description().samples, 40);
  EXPECT_EQ(epoch_of(*dropping, 0).size(), 5u);
  o.batch = 100;
  EXPECT_EQ(make_loader(split(), o)->batches_per_epoch(), 0);
  EXPECT_TRUE(epochs_of(split(), o, 2).empty());
}

// Ten samples over four ranks, two a batch: the table of docs/data.md.
TEST(Shards, ShareTheOrderExactly) {
  LoaderOptions o;
  o.batch = 2;
  o.ranks = 4;
  const auto table = [&](LastBatch last, int64_t samples) {
    o.last_batch = last;
    std::string text;
    for (o.rank = 0; o.rank < o.ranks; ++o.rank) {
      for (int64_t b = 0; b < batches_per_epoch(samples, o); ++b) {
        const BatchRange range = batch_range(samples, o, b);
        text += fmt::format("{}+{} ", range.first, range.count);
      }
      text += "| ";
    }
    return text;
  };
  EXPECT_EQ(table(LastBatch::exact, 10), "0+2 | 2+2 8+1 | 4+2 | 6+2 9+1 | ");
  EXPECT_EQ(table(LastBatch::keep, 10), "0+2 | 2+2 | 4+2 | 6+2 | ");
  EXPECT_EQ(table(LastBatch::keep, 13), "0+2 8+1 | 2+2 9+1 | 4+2 10+1 | 6+2 11+2 | ");
  EXPECT_EQ(table(LastBatch::drop, 15), "0+2 | 2+2 | 4+2 | 6+2 | ");
  for (int64_t samples = 0; samples < 70; ++samples) {
    std::vector<int> seen(size_t(samples), 0);
    o.last_batch = LastBatch::exact;
    for (o.rank = 0; o.rank < o.ranks; ++o.rank)
      for (int64_t b = 0; b < batches_per_epoch(samples, o); ++b) {
        const BatchRange range = batch_range(samples, o, b);
        ASSERT_GE(range.count, 1);
        ASSERT_LE(range.count, o.batch);
        for (int64_t i = 0; i < range.count; ++i) ++seen[size_t(range.first + i)];
      }
    for (const int count : seen) ASSERT_EQ(count, 1);
    o.last_batch = LastBatch::keep;
    std::set<int64_t> counts;
    for (o.rank = 0; o.rank < o.ranks; ++o.rank) counts.insert(batches_per_epoch(samples, o));
    ASSERT_EQ(counts.size(), 1u);
  }
}

TEST_F(LoaderTest, RanksTogetherDrawWhatOneRankDraws) {
  const std::vector<Taken> alone = epochs_of(split(), training(8), 1);
  std::string all, shared;
  for (const Taken& taken : alone) all += taken.images;
  std::vector<std::vector<Taken>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    LoaderOptions o = training(4);
    o.ranks = 2;
    o.rank = rank;
    ranks.push_back(epochs_of(split(), o, 1));
  }
  ASSERT_EQ(ranks[0].size(), ranks[1].size());
  for (size_t b = 0; b < ranks[0].size(); ++b) shared += ranks[0][b].images + ranks[1][b].images;
  EXPECT_EQ(shared, all);
}

TEST(Augmenting, EqualPicturesGetDifferentCropsInEveryPlaceAndEpoch) {
  TemporaryFolder folder;
  const std::string picture = jpeg_of(64, 64, 1);
  for (int i = 0; i < 16; ++i) folder.write(fmt::format("{}/{}.jpg", i % 2 ? "a" : "b", i), picture);
  const Dataset set = open_dataset(folder.path());
  LoaderOptions o = training(1);
  o.threads = 4;
  std::set<std::string> different;
  for (const Taken& taken : epochs_of(set.train(), o, 2)) different.insert(taken.images);
  EXPECT_EQ(different.size(), 32u);
}

TEST_F(LoaderTest, GrayModelsGetOneChannel) {
  LoaderOptions o = evaluation();
  o.channels = 1;
  const auto loader = make_loader(split(), o);
  EXPECT_EQ(loader->description().channels, 1);
  EXPECT_EQ(epoch_of(*loader, 0)[0].images.size(), size_t(8 * 16 * 16));
}

TEST_F(LoaderTest, ViewsStayValidUntilTheSecondNextCall) {
  LoaderOptions o = training(2);
  o.prefetch = 1;
  const auto loader = make_loader(split(), o);
  const std::vector<Taken> wanted = epoch_of(*loader, 3);
  loader->start_epoch(3, 0);
  BatchView before, view;
  ASSERT_TRUE(loader->next(before));
  for (size_t b = 1; loader->next(view); ++b) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_EQ(copy_of(before, *loader), wanted[b - 1]);
    ASSERT_EQ(copy_of(view, *loader), wanted[b]);
    before = view;
  }
  ASSERT_EQ(copy_of(before, *loader), wanted.back());
}

TEST_F(LoaderTest, CachesWithinItsBound) {
  LoaderOptions o = training();
  o.cache_bytes = 10'000;
  const auto loader = make_loader(split(), o);
  epoch_of(*loader, 0);
  LoaderReport report = loader->report();
  EXPECT_GT(report.cached_images, 0);
  EXPECT_LT(report.cached_images, kSamples);
  EXPECT_LE(report.cached_bytes, 10'000);
  o.cache_bytes = 1 << 30;
  const auto all = make_loader(split(), o);
  epoch_of(*all, 0);
  EXPECT_EQ(all->report().cached_images, kSamples);
  EXPECT_EQ(report.bad_files, 0);
  // With everything cached the files are not needed any more.
  std::filesystem::remove_all(folder_.path("a"));
  EXPECT_EQ(epoch_of(*all, 1).size(), 6u);
}

class CountingAllocator final : public HostAllocator {
 public:
  void* allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) throw Error(StatusCode::out_of_memory, "no more");
    --left_;
    ++live;
    total += bytes;
    return allocate_aligned(bytes).release();
  }
  void release(void* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    --live;
    AlignedDelete()(static_cast<std::byte*>(memory));
  }
  explicit CountingAllocator(int most = 1000) : left_(most) {}
  int live = 0;
  size_t total = 0;

 private:
  std::mutex mutex_;
  int left_;
};

TEST_F(LoaderTest, TakesItsSlotsFromTheAllocator) {
  CountingAllocator allocator;
  {
    const auto loader = make_loader(split(), training());
    loader->use_allocator(allocator);
    loader->start_epoch(0, 0);
    EXPECT_EQ(allocator.live, 5);
    BatchView view;
    ASSERT_TRUE(loader->next(view));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.images) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.labels) % 256, 0u);
    EXPECT_EQ(error_of([&] { loader->use_allocator(allocator); }).code(), StatusCode::invalid_state);
    for (int64_t epoch = 1; epoch < 4; ++epoch) epoch_of(*loader, epoch);
    EXPECT_EQ(allocator.live, 5);
  }
  EXPECT_EQ(allocator.live, 0);

  CountingAllocator small(3);
  const auto loader = make_loader(split(), training());
  loader->use_allocator(small);
  EXPECT_EQ(error_of([&] { loader->start_epoch(0, 0); }).code(), StatusCode::out_of_memory);
  EXPECT_EQ(small.live, 0);
}

TEST_F(LoaderTest, EndsAtAnyMoment) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  BatchView view;
  for (int i = 0; i < 40; ++i) {
    LoaderOptions o = training(1 + i % 9);
    o.threads = 1 + i % 5;
    const auto loader = make_loader(split(), o);
    if (i % 4 == 0) continue;  // never started
    loader->start_epoch(i, 0);
    for (int b = 0; b < i % 5; ++b) ASSERT_TRUE(loader->next(view));
  }
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 20.0);
}

TEST_F(LoaderTest, RequestStopEndsAWaitingAndEveryLaterCall) {
  const auto loader = make_loader(split(), training());
  BatchView view;
  loader->start_epoch(0, 0);
  auto taker = std::async(std::launch::async, [&] {
    return error_of([&] {
      for (int64_t epoch = 0;; ++epoch) {
        loader->start_epoch(epoch, 0);
        while (loader->next(view)) {
        }
      }
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  loader->request_stop();
  ASSERT_EQ(taker.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(taker.get().code(), StatusCode::cancelled);
  EXPECT_EQ(error_of([&] { loader->next(view); }).code(), StatusCode::cancelled);
}

TEST_F(LoaderTest, MisuseIsNamed) {
  const auto reason = [&](auto change) {
    LoaderOptions o = training();
    change(o);
    const Error error = error_of([&] { make_loader(split(), o); });
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_NE(reason([](LoaderOptions& o) { o.batch = 0; }).find("batch"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.height = 0; }).find("height"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.channels = 4; }).find("channels"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.threads = -1; }).find("threads"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.prefetch = 0; }).find("prefetch"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.rank = 1; }).find("rank"), std::string::npos);
  EXPECT_NE(reason([](LoaderOptions& o) { o.augmentation.flip = -1; }).find("flip"), std::string::npos);
  EXPECT_EQ(error_of([] { make_loader(Split{}, training()); }).code(), StatusCode::invalid_argument);

  const auto loader = make_loader(split(), training());
  BatchView view;
  EXPECT_EQ(error_of([&] { loader->next(view); }).code(), StatusCode::invalid_state);
  EXPECT_EQ(error_of([&] { loader->start_epoch(0, 7); }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(error_of([&] { loader->start_epoch(-1, 0); }).code(), StatusCode::invalid_argument);
  loader->start_epoch(0, 6);
  EXPECT_FALSE(loader->next(view));
  EXPECT_FALSE(loader->next(view));
}

TEST_F(LoaderTest, IdentityTellsWhatMatters) {
  using Identity = std::map<std::string, std::string>;
  const auto identity = [&](auto change) {
    LoaderOptions o = training();
    change(o);
    return make_loader(split(), o)->identity();
  };
  const Identity base = identity([](LoaderOptions&) {});
  // The names whose values are others.
  const auto differing = [&](const Identity& other) {
    std::vector<std::string> names;
    EXPECT_EQ(other.size(), base.size());
    for (const auto& [name, value] : base)
      if (other.at(name) != value) names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(differing(identity(
                [](LoaderOptions& o) { o.threads = 5, o.prefetch = 1, o.cache_bytes = 0, o.batch = 3; })),
            Names{});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.seed = 1; })), Names{"seed"});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.shuffle = false; })), Names{"shuffle"});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.last_batch = LastBatch::drop; })),
            Names{"last batch"});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.bad_files = BadFiles::skip; })), Names{"bad files"});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.augmentation.flip = 0; })), Names{"augmentation"});
  EXPECT_EQ(differing(identity([](LoaderOptions& o) { o.width = 8; })), Names{"size"});

  // another picture of the same name, and one more
  const std::string first = split().path(0);
  const std::string old = read_file(first);
  write_file(first, old + "x");
  EXPECT_EQ(differing(make_loader(split(), training())->identity()), Names{"picture sizes in bytes"});
  std::filesystem::remove(first);  // an open data set's file that is gone
  EXPECT_EQ(differing(make_loader(split(), training())->identity()), Names{"picture sizes in bytes"});
  write_file(first, old);
  EXPECT_EQ(differing(make_loader(split(), training())->identity()), Names{});
  folder_.write("a/more.jpg", jpeg_of(9, 9, 1));
  const Dataset more = open_dataset(folder_.path());
  EXPECT_EQ(differing(make_loader(more.train(), training())->identity()),
            (Names{"picture names and labels", "picture sizes in bytes"}));
}

TEST_F(LoaderTest, ArchivesTellAnotherContentOfTheSameSize) {
  std::vector<std::map<std::string, std::string>> found;
  for (const char last : {'a', 'b'}) {
    auto files = small_set();
    files.begin()->second.back() = last;
    const std::string path = folder_.path("set.zip");
    write_zip(path, files, true);
    found.push_back(make_loader(open_dataset(path).train(), training())->identity());
    std::filesystem::remove(path);
  }
  EXPECT_NE(found[0].at("picture checksums"), found[1].at("picture checksums"));
  EXPECT_EQ(found[0].at("picture sizes in bytes"), found[1].at("picture sizes in bytes"));
}

TEST_F(LoaderTest, SamplesHaveNames) {
  LoaderOptions o = training();
  o.shuffle = false;
  EXPECT_EQ(make_loader(split(), o)->sample_name(3, 2), split().path(2));
  EXPECT_EQ(make_loader(split(), o)->sample_name(3, 1 << 20), "");
  o.shuffle = true;
  const auto order = epoch_order(split().size(), true, o.seed, 3);
  EXPECT_EQ(make_loader(split(), o)->sample_name(3, 2), split().path(order[2]));
}

// --- bad files ---------------------------------------------------------------------

class BadFilesTest : public LoaderTest {
 protected:
  BadFilesTest() {
    folder_.write("a/03.jpg", "this is text, whatever its name says");
    folder_.write("b/07.jpg", "");
    const std::string whole = jpeg_of(24, 24, 5);
    folder_.write("c/11.jpg", whole.substr(0, whole.size() * 3 / 4));
  }
};

TEST_F(BadFilesTest, FailNamesTheFirstOneInTheStream) {
  for (const int threads : {1, 2, 5}) {
    LoaderOptions o = evaluation();
    o.threads = threads;
    const auto loader = make_loader(split(), o);
    loader->start_epoch(0, 0);
    BatchView view;
    const Error error = error_of([&] { loader->next(view); });
    EXPECT_EQ(error.code(), StatusCode::invalid_data);
    EXPECT_NE(std::string(error.what()).find(folder_.path("a/03.jpg")), std::string::npos) << error.what();
    EXPECT_THROW(loader->next(view), Error);
    loader->start_epoch(0, 1);  // behind it
    EXPECT_TRUE(loader->next(view));
  }
}

TEST_F(BadFilesTest, SkipTakesTheNextGoodOneOrLeavesItOut) {
  for (const LoaderOptions& base : {training(), evaluation()}) {
    std::vector<Taken> wanted;
    for (const int threads : {1, 2, 5})
      for (const int64_t cache : {int64_t{0}, int64_t{1} << 30}) {
        LoaderOptions o = base;
        o.bad_files = BadFiles::skip;
        o.threads = threads;
        o.cache_bytes = cache;
        const auto loader = make_loader(split(), o);
        std::vector<Taken> all = epoch_of(*loader, 0);
        for (Taken& taken : epoch_of(*loader, 1)) all.push_back(std::move(taken));
        if (wanted.empty()) wanted = all;
        ASSERT_EQ(all, wanted) << threads << ' ' << cache;
        const LoaderReport report = loader->report();
        EXPECT_EQ(report.bad_files, 3);
        ASSERT_EQ(report.bad.size(), 3u);
        EXPECT_NE(report.bad[0].find("a/03.jpg"), std::string::npos);
        EXPECT_NE(report.bad[1].find("is empty"), std::string::npos);
        EXPECT_NE(report.bad[2].find("truncated"), std::string::npos);
      }
    ASSERT_EQ(wanted.size(), 12u);
    // Measured data has no stand-ins: a black picture whose label counts nowhere.
    if (!base.shuffle) {
      const size_t bytes = 16 * 16 * 3;
      EXPECT_EQ(wanted[0].images.substr(3 * bytes, bytes), std::string(bytes, '\0'));
      EXPECT_EQ(wanted[0].labels[3], BatchSource::kIgnoredLabel);
      EXPECT_NE(wanted[0].labels[4], BatchSource::kIgnoredLabel);
    }
  }
}

TEST_F(BadFilesTest, ReplaceKeepsTheLabelAndWhatCanBeSeen) {
  LoaderOptions o = evaluation(kSamples);
  o.bad_files = BadFiles::replace;
  const auto loader = make_loader(split(), o);
  const Taken taken = epoch_of(*loader, 0).at(0);
  EXPECT_EQ(taken.labels, split().labels);
  const size_t bytes = 16 * 16 * 3;
  EXPECT_EQ(taken.images.substr(3 * bytes, bytes), std::string(bytes, char(128)));
  const std::string part = taken.images.substr((2 * kPerClass + 11) * bytes, bytes);
  EXPECT_NE(part, std::string(bytes, char(128)));
  EXPECT_EQ(loader->report().bad_files, 3);
}

TEST_F(BadFilesTest, NothingGoodAtAllIsAnError) {
  for (const char* name : {"a", "b", "c"})
    for (int i = 0; i < kPerClass; ++i) folder_.write(fmt::format("{}/{:02}.jpg", name, i), "text");
  for (const BadFiles policy : {BadFiles::skip, BadFiles::fail}) {
    LoaderOptions o = training();
    o.bad_files = policy;
    const auto loader = make_loader(split(), o);
    BatchView view;
    loader->start_epoch(0, 0);
    EXPECT_EQ(error_of([&] { loader->next(view); }).code(), StatusCode::invalid_data);
  }
}

TEST_F(BadFilesTest, MoreThanAHundredAreCountedAndTheFirstNamed) {
  for (int i = 0; i < 120; ++i) folder_.write(fmt::format("a/z{:03}.jpg", i), "text");
  LoaderOptions o = training();
  o.bad_files = BadFiles::skip;
  o.threads = 5;
  const auto loader = make_loader(split(), o);
  epoch_of(*loader, 0);
  const LoaderReport report = loader->report();
  EXPECT_EQ(report.bad_files, 123);
  ASSERT_EQ(report.bad.size(), 100u);
  EXPECT_NE(report.bad[99].find("a/z098.jpg"), std::string::npos) << report.bad[99];
}

// A bad picture must not show what its thread decoded before.
TEST_F(LoaderTest, FilesThatVanishAreNamed) {
  const auto loader = make_loader(split(), evaluation());
  std::filesystem::remove(folder_.path("b/02.jpg"));
  const Error error = error_of([&] { epoch_of(*loader, 0); });
  EXPECT_EQ(error.code(), StatusCode::not_found);
  EXPECT_NE(std::string(error.what()).find("b/02.jpg"), std::string::npos);
}

TEST(DecodeImageFile, IsWhatEvaluationDoes) {
  TemporaryFolder folder;
  const std::string path = folder.write("picture", jpeg_of(40, 30, 3));
  std::vector<uint8_t> pixels;
  decode_image_file(path, Augmentation::eval(), 16, 20, 3, pixels);
  LoaderOptions o = evaluation(1);
  o.height = 16;
  o.width = 20;
  const auto loader = make_loader(open_pictures(path), o);
  const Taken taken = epoch_of(*loader, 0).at(0);
  EXPECT_EQ(taken.images, std::string(pixels.begin(), pixels.end()));
  EXPECT_EQ(taken.labels, std::vector<int32_t>{-1});
  EXPECT_EQ(error_of([&] { decode_image_file(folder.path(), {}, 8, 8, 3, pixels); }).code(), StatusCode::io);
  EXPECT_EQ(error_of([&] { decode_image_file(folder.path("none"), {}, 8, 8, 3, pixels); }).code(),
            StatusCode::not_found);
  EXPECT_EQ(error_of([&] { decode_image_file(path, {}, 0, 8, 3, pixels); }).code(),
            StatusCode::invalid_argument);
  const std::string text = folder.write("text.jpg", "text");
  const Error error = error_of([&] { decode_image_file(text, {}, 8, 8, 3, pixels); });
  EXPECT_NE(std::string(error.what()).find("text.jpg"), std::string::npos);
}

}  // namespace
}  // namespace ren::data::test
