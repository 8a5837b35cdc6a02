// SPDX-License-Identifier: Apache-2.0
// Files that vanish, can't be read any more, grow, shrink or become others while an epoch runs.
#include <filesystem>
#include <functional>

#include "data/loader_support.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPictureBytes = 16 * 16 * 3;

// Where a picture is at which nobody is yet when the first batch has been taken: four batches of four are in
// memory.
constexpr int kLate = 2 * kPerClass + 10;  // c/10.jpg
constexpr const char* kLatePath = "c/10.jpg";

struct Change {
  const char* name;
  std::function<void(const std::string& path)> make;
  StatusCode code;     // with the policy `fail`
  const char* reason;  // in the message
  bool shows_part = false;
};

void put(const std::string& path, const std::string& bytes) {
  fs::remove_all(path);
  write_file(path, bytes);
}

std::vector<Change> bad_changes() {
  return {
      {"vanishes", [](const std::string& path) { fs::remove(path); }, StatusCode::not_found,
       "No such file or directory"},
      {"becomes a folder",
       [](const std::string& path) {
         fs::remove(path);
         fs::create_directory(path);
       },
       StatusCode::io, "not a regular file"},
      // As the administrator, whom no permission stops: a link that leads to itself can't be opened either.
      {"can't be opened",
       [](const std::string& path) {
         fs::remove(path);
         fs::create_symlink(path, path);
       },
       StatusCode::io, "Too many levels of symbolic links"},
      {"becomes text", [](const std::string& path) { put(path, "no picture"); }, StatusCode::invalid_data,
       "neither"},
      {"becomes empty", [](const std::string& path) { put(path, ""); }, StatusCode::invalid_data, "is empty"},
      {"shrinks", [](const std::string& path) { fs::resize_file(path, fs::file_size(path) * 3 / 4); },
       StatusCode::invalid_data, "truncated", true}};
}

class ChangingFiles : public LoaderTest {
 protected:
  // Batches of four, one ahead; the change comes when the first batch has been taken.
  LoaderOptions options(BadFiles policy) const {
    LoaderOptions o = evaluation(4);
    o.prefetch = 1;
    o.cache_bytes = 0;
    o.bad_files = policy;
    return o;
  }

  std::vector<Taken> epoch_with(Loader& loader, const std::function<void(const std::string&)>& change) {
    std::vector<Taken> all;
    BatchView view;
    loader.start_epoch(0, 0);
    EXPECT_TRUE(loader.next(view));
    all.push_back(copy_of(view, loader));
    change(folder_.path(kLatePath));
    for (Taken& taken : rest_of_epoch(loader)) all.push_back(std::move(taken));
    put(folder_.path(kLatePath), content_);
    return all;
  }

  static std::string picture(const std::vector<Taken>& batches, int position) {
    return batches[size_t(position / 4)].images.substr(size_t(position % 4) * kPictureBytes, kPictureBytes);
  }
  static int label(const std::vector<Taken>& batches, int position) {
    return batches[size_t(position / 4)].labels[size_t(position % 4)];
  }
  // All pictures but the one that was changed.
  static void expect_others(const std::vector<Taken>& seen, const std::vector<Taken>& wanted) {
    ASSERT_EQ(seen.size(), wanted.size());
    for (int i = 0; i < kSamples; ++i) {
      if (i == kLate) continue;
      ASSERT_EQ(picture(seen, i), picture(wanted, i)) << i;
      ASSERT_EQ(label(seen, i), label(wanted, i)) << i;
    }
  }

  const std::string content_ = read_file(folder_.path(kLatePath));
  const std::vector<Taken> whole_ = epochs_of(split(), options(BadFiles::fail), 1);
};

TEST_F(ChangingFiles, FailNamesThem) {
  for (const Change& change : bad_changes()) {
    SCOPED_TRACE(change.name);
    const auto loader = make_loader(split(), options(BadFiles::fail));
    const Error error = error_of([&] { epoch_with(*loader, change.make); });
    put(folder_.path(kLatePath), content_);
    EXPECT_EQ(error.code(), change.code);
    EXPECT_NE(std::string(error.what()).find(folder_.path(kLatePath)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(change.reason), std::string::npos) << error.what();
    EXPECT_EQ(epoch_of(*loader, 0), whole_);  // what came back is read again
  }
}

TEST_F(ChangingFiles, SkipLeavesThemOutOfWhatIsMeasured) {
  for (const Change& change : bad_changes()) {
    SCOPED_TRACE(change.name);
    const auto loader = make_loader(split(), options(BadFiles::skip));
    const std::vector<Taken> seen = epoch_with(*loader, change.make);
    expect_others(seen, whole_);
    EXPECT_EQ(picture(seen, kLate), std::string(kPictureBytes, '\0'));
    EXPECT_EQ(label(seen, kLate), BatchSource::kIgnoredLabel);
    const LoaderReport report = loader->report();
    ASSERT_EQ(report.bad.size(), 1u);
    EXPECT_NE(report.bad[0].find(kLatePath), std::string::npos) << report.bad[0];
    EXPECT_NE(report.bad[0].find(change.reason), std::string::npos) << report.bad[0];
    // A picture that was bad once counts nowhere in later epochs either, so that they are comparable.
    EXPECT_EQ(epoch_of(*loader, 1), seen);
  }
}

TEST_F(ChangingFiles, ReplaceKeepsTheirLabels) {
  for (const Change& change : bad_changes()) {
    SCOPED_TRACE(change.name);
    const auto loader = make_loader(split(), options(BadFiles::replace));
    const std::vector<Taken> seen = epoch_with(*loader, change.make);
    expect_others(seen, whole_);
    EXPECT_EQ(label(seen, kLate), label(whole_, kLate));
    EXPECT_NE(picture(seen, kLate), picture(whole_, kLate));
    EXPECT_EQ(picture(seen, kLate) == std::string(kPictureBytes, char(128)), !change.shows_part);
    EXPECT_EQ(loader->report().bad_files, 1);
  }
}

TEST_F(ChangingFiles, TrainingTakesAnotherForThem) {
  const LoaderOptions base = [] {
    LoaderOptions o = training(9);  // five full batches
    o.prefetch = 1;
    o.cache_bytes = 0;
    o.bad_files = BadFiles::skip;
    return o;
  }();
  for (const Change& change : bad_changes()) {
    SCOPED_TRACE(change.name);
    const auto loader = make_loader(split(), base);
    loader->start_epoch(0, 0);
    BatchView view;
    ASSERT_TRUE(loader->next(view));
    for (int i = 0; i < kPerClass; ++i) change.make(folder_.path(fmt::format("c/{:02}.jpg", i)));
    int64_t samples = view.count, of_c = 0;
    loader->start_epoch(1, 0);  // all of it is made after the change
    while (loader->next(view)) {
      samples += view.count;
      of_c += std::count(view.labels, view.labels + view.count, 2);
    }
    EXPECT_EQ(samples, 9 + kSamples);  // batches keep their sizes
    EXPECT_EQ(of_c, 0);
    EXPECT_EQ(loader->report().bad_files, kPerClass);
    for (const auto& [name, bytes] : small_set()) put(folder_.path(name), bytes);
  }
}

// What is still a picture is no error: the label is its path's.
TEST_F(ChangingFiles, PicturesThatGrowOrBecomeOthersAreUsedAsTheyAre) {
  const std::string other = jpeg_of(50, 30, 999);
  folder_.write("other/x.jpg", other);
  const std::vector<Taken> shown =
      epochs_of(open_pictures(folder_.path("other")), options(BadFiles::fail), 1);
  fs::remove_all(folder_.path("other"));
  for (const BadFiles policy : {BadFiles::fail, BadFiles::skip, BadFiles::replace}) {
    const auto grown = make_loader(split(), options(policy));
    EXPECT_EQ(
        epoch_with(*grown, [&](const std::string& path) { put(path, content_ + std::string(5000, 'x')); }),
        whole_);
    EXPECT_EQ(grown->report().bad_files, 0);
    const auto replaced = make_loader(split(), options(policy));
    const std::vector<Taken> seen = epoch_with(*replaced, [&](const std::string& path) { put(path, other); });
    expect_others(seen, whole_);
    EXPECT_EQ(picture(seen, kLate), shown[0].images.substr(0, kPictureBytes));
    EXPECT_EQ(label(seen, kLate), label(whole_, kLate));
    EXPECT_EQ(replaced->report().bad_files, 0);
  }
}

}  // namespace
}  // namespace ren::data::test
