// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small data set, usual options, and what a loader gave as values to compare.

#include "data/dataset.h"
#include "data/support.h"

namespace ren::data::test {

inline constexpr int kClasses = 3, kPerClass = 15, kSamples = kClasses * kPerClass;

inline std::string class_name(int label) { return std::string(1, char('a' + label)); }

// 45 pictures of differing sizes in three classes.
inline Files small_set() {
  Files files;
  for (int label = 0; label < kClasses; ++label)
    for (int i = 0; i < kPerClass; ++i)
      files.emplace_back(fmt::format("{}/{:02}.jpg", class_name(label), i),
                         jpeg_of(20 + i % 7, 18 + i % 5, uint32_t(label * 100 + i)));
  return files;
}

class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() { write_files(folder_, small_set()); }

  const Split& split() {
    if (set_.splits.empty()) set_ = open_dataset(folder_.path());
    return set_.train();
  }

  TemporaryFolder folder_;
  Dataset set_;
};

inline LoaderOptions training(int64_t batch = 8) {
  LoaderOptions o;
  o.batch = batch;
  o.height = o.width = 16;
  o.augmentation.mode = Augmentation::Mode::random_resized_crop;
  o.augmentation.flip = 0.5f;
  o.shuffle = true;
  o.seed = 42;
  o.threads = 2;
  return o;
}

inline LoaderOptions evaluation(int64_t batch = 8) {
  LoaderOptions o = training(batch);
  o.augmentation = Augmentation::eval();
  o.shuffle = false;
  o.last_batch = LastBatch::exact;
  return o;
}

struct Taken {
  std::string images;
  std::vector<int32_t> labels;
  int64_t first = 0;
  bool operator==(const Taken&) const = default;
};

inline Taken copy_of(const BatchView& view, const BatchSource& source) {
  const auto& d = source.description();
  Taken taken;
  taken.images.assign(static_cast<const char*>(view.images),
                      size_t(view.count * d.height * d.width * d.channels));
  taken.labels.assign(view.labels, view.labels + view.count);
  taken.first = view.first_sample;
  return taken;
}

inline std::vector<Taken> rest_of_epoch(BatchSource& source) {
  std::vector<Taken> batches;
  BatchView view;
  while (source.next(view)) batches.push_back(copy_of(view, source));
  return batches;
}

inline std::vector<Taken> epoch_of(BatchSource& source, int64_t epoch, int64_t first_batch = 0) {
  source.start_epoch(epoch, first_batch);
  return rest_of_epoch(source);
}

inline std::vector<Taken> epochs_of(const Split& split, const LoaderOptions& options, int64_t count) {
  const auto loader = make_loader(split, options);
  std::vector<Taken> all;
  for (int64_t epoch = 0; epoch < count; ++epoch)
    for (Taken& taken : epoch_of(*loader, epoch)) all.push_back(std::move(taken));
  return all;
}

}  // namespace ren::data::test
