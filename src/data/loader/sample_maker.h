// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "data/augment/transform.h"
#include "data/dataset.h"
#include "data/decode/decode.h"
#include "data/loader/stage_clock.h"

namespace ren::data {

// Prepared pictures by sample, kept until the bound is reached and then no more. A picture
// is the same whether it comes from here or is decoded again.
class PictureCache {
 public:
  PictureCache(int64_t samples, int64_t most_bytes);
  ~PictureCache();
  PictureCache(const PictureCache&) = delete;
  PictureCache& operator=(const PictureCache&) = delete;

  const Image* find(int64_t sample) const;
  void offer(int64_t sample, const Image& picture);
  bool is_full() const { return full_.load(std::memory_order_relaxed); }  // the last offer found no room
  int64_t images() const { return images_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::atomic<Image*>> pictures_;
  const int64_t most_bytes_;
  std::atomic<int64_t> images_{0}, bytes_{0};
  std::atomic<bool> full_;
};

// What went wrong with files so far. Thread-safe.
class FileLog {
 public:
  explicit FileLog(int64_t samples) : known_(size_t(samples)) {}

  void add_bad(int64_t sample, const std::string& message);
  void add_damaged(int64_t sample, const std::string& path);
  bool is_bad(int64_t sample) const {
    return (known_[size_t(sample)].load(std::memory_order_relaxed) & kBad) != 0;
  }
  int64_t bad_count() const {
    const std::lock_guard lock(mutex_);
    return bad_count_;
  }
  void fill(LoaderReport& report) const;

 private:
  static constexpr uint8_t kBad = 1, kDamaged = 2;
  void add(int64_t sample, uint8_t kind, const std::string& text, int64_t& count,
           std::map<int64_t, std::string>& texts);

  std::vector<std::atomic<uint8_t>> known_;
  mutable std::mutex mutex_;
  int64_t bad_count_ = 0, damaged_count_ = 0;
  std::map<int64_t, std::string> bad_, damaged_;
};

// Everything about samples that threads share.
struct SampleSet {
  SampleSet(const Split& the_split, const LoaderOptions& the_options)
      : split(the_split), options(the_options), cache(split.size(), options.cache_bytes), log(split.size()) {}

  const Split split;
  const LoaderOptions options;
  PictureCache cache;
  FileLog log;
};

// Makes single samples; one a thread.
class SampleMaker {
 public:
  explicit SampleMaker(SampleSet& samples);

  // The sample at a position of an epoch's order (nullptr = in sequence). Throws Error.
  void make(int64_t position, const std::vector<uint32_t>* order, int64_t epoch, uint8_t* pixels,
            int32_t& label);

  // What was done since the last call.
  ThreadWork take_work() { return clock_.take(); }

 private:
  void make_one(int64_t sample, RandomStream& random, uint8_t* pixels);
  bool make_good(int64_t sample, RandomStream random, uint8_t* pixels);
  void make_sample(int64_t position, const std::vector<uint32_t>* order, int64_t epoch, uint8_t* pixels,
                   int32_t& label);
  void release_large_buffers();
  void read(int64_t sample);
  bool may_be_reduced();
  const Image& decode(int64_t sample, bool tolerate_damage);
  void make_from_part(int64_t sample, RandomStream& random, uint8_t* pixels);
  void fail_if_all_bad() const;
  const Image& replacement(int64_t sample);

  SampleSet& samples_;
  Decoder decoder_;
  Transformer transformer_;
  std::string bytes_;
  Image decoded_;
  StageClock clock_;
};

}  // namespace ren::data
