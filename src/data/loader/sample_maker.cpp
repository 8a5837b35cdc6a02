// SPDX-License-Identifier: Apache-2.0
#include "data/loader/sample_maker.h"

#include <algorithm>
#include <cstring>

#include "data/loader/purpose.h"
#include "data/source/stores.h"
#include "engine/base/batch_source.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr size_t kMostMessages = 100;

// What a thread keeps of each buffer from picture to picture: 11 megapixels. The pages of larger ones cost
// little beside decoding such a picture.
constexpr size_t kKeptBytes = size_t{32} << 20;

int64_t cost_of(const Image& picture) { return int64_t(picture.bytes() + kImagePadding + sizeof(Image)); }

std::vector<std::string> values_of(const std::map<int64_t, std::string>& texts) {
  std::vector<std::string> out;
  for (const auto& [sample, text] : texts) out.push_back(text);
  return out;
}

}  // namespace

PictureCache::PictureCache(int64_t samples, int64_t most_bytes)
    : pictures_(most_bytes > 0 ? size_t(samples) : 0), most_bytes_(most_bytes), full_(most_bytes <= 0) {}

PictureCache::~PictureCache() {
  for (std::atomic<Image*>& picture : pictures_) delete picture.load();
}

const Image* PictureCache::find(int64_t sample) const {
  return pictures_.empty() ? nullptr : pictures_[size_t(sample)].load(std::memory_order_acquire);
}

void PictureCache::offer(int64_t sample, const Image& picture) {
  if (pictures_.empty()) return;
  const int64_t cost = cost_of(picture);
  if (bytes_.fetch_add(cost) + cost > most_bytes_) {
    bytes_.fetch_sub(cost);
    full_.store(true, std::memory_order_relaxed);
    return;
  }
  auto copy = std::make_unique<Image>(picture.width(), picture.height(), picture.channels());
  std::memcpy(copy->data(), picture.data(), picture.bytes());
  Image* expected = nullptr;
  if (pictures_[size_t(sample)].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel)) {
    copy.release();
    images_.fetch_add(1);
  } else {
    bytes_.fetch_sub(cost);
  }
}

void FileLog::add_bad(int64_t sample, const std::string& message) {
  add(sample, kBad, message, bad_count_, bad_);
}

void FileLog::add_damaged(int64_t sample, const std::string& path) {
  add(sample, kDamaged, path, damaged_count_, damaged_);
}

// Of too many, those of the lowest samples stay: what is reported must not depend on timing.
void FileLog::add(int64_t sample, uint8_t kind, const std::string& text, int64_t& count,
                  std::map<int64_t, std::string>& texts) {
  const std::lock_guard lock(mutex_);
  if ((known_[size_t(sample)].fetch_or(kind) & kind) != 0) return;
  ++count;
  texts.emplace(sample, text);
  if (texts.size() > kMostMessages) texts.erase(std::prev(texts.end()));
}

void FileLog::fill(LoaderReport& report) const {
  const std::lock_guard lock(mutex_);
  report.bad_files = bad_count_;
  report.bad = values_of(bad_);
  report.damaged_files = damaged_count_;
  report.damaged = values_of(damaged_);
}

SampleMaker::SampleMaker(SampleSet& samples)
    : samples_(samples),
      transformer_(samples.options.augmentation, int(samples.options.height), int(samples.options.width),
                   int(samples.options.channels)) {}

void SampleMaker::make(int64_t position, const std::vector<uint32_t>* order, int64_t epoch, uint8_t* pixels,
                       int32_t& label) {
  try {
    make_sample(position, order, epoch, pixels, label);
  } catch (...) {
    release_large_buffers();
    throw;
  }
  release_large_buffers();
}

void SampleMaker::release_large_buffers() {
  decoded_.release_beyond(kKeptBytes);
  transformer_.release_beyond(kKeptBytes);
  if (bytes_.capacity() > kKeptBytes) bytes_ = std::string();
}

void SampleMaker::make_sample(int64_t position, const std::vector<uint32_t>* order, int64_t epoch,
                              uint8_t* pixels, int32_t& label) {
  const LoaderOptions& o = samples_.options;
  const int64_t total = samples_.split.size();
  const auto sample_at = [&](int64_t p) { return order != nullptr ? int64_t{(*order)[size_t(p)]} : p; };
  // Keyed by the position: a sample that stands in for another is augmented anew.
  RandomStream random(o.seed, kPurposeAugment, uint64_t(position), uint32_t(epoch));
  int64_t sample = sample_at(position);
  if (o.bad_files == BadFiles::skip && order == nullptr) {
    // Measured data: nothing stands in for a picture, it is left out of all counts.
    if (!make_good(sample, random, pixels)) {
      fail_if_all_bad();
      std::fill_n(pixels, size_t(o.height * o.width * o.channels), uint8_t{0});
      label = BatchSource::kIgnoredLabel;
      return;
    }
  } else if (o.bad_files == BadFiles::skip) {
    int64_t step = 0;
    while (step < total && !make_good(sample, random, pixels))
      sample = sample_at((position + ++step) % total);
    if (step == total) fail_if_all_bad();
  } else {
    make_one(sample, random, pixels);
  }
  label = samples_.split.labels[size_t(sample)];
  clock_.count_picture();
}

void SampleMaker::read(int64_t sample) {
  clock_.enter_read();
  samples_.split.store->read(samples_.split.files[size_t(sample)], bytes_);
  clock_.count_file(bytes_.size());
  clock_.enter_decode();
}

void SampleMaker::fail_if_all_bad() const {
  if (samples_.log.bad_count() < samples_.split.size()) return;
  LoaderReport report;
  samples_.log.fill(report);
  fail(StatusCode::invalid_data, "no picture of '{}' can be used, the first: {}", samples_.split.store->uri(),
       report.bad.at(0));
}

bool SampleMaker::make_good(int64_t sample, RandomStream random, uint8_t* pixels) {
  if (samples_.log.is_bad(sample)) return false;
  try {
    make_one(sample, random, pixels);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A bad sample throws, unless it is to be replaced.
void SampleMaker::make_one(int64_t sample, RandomStream& random, uint8_t* pixels) {
  if (const Image* cached = samples_.cache.find(sample)) {
    clock_.enter_transform();
    return transformer_.finish(*cached, random, pixels);
  }
  const RandomStream begin = random;
  try {
    read(sample);
    // A picture that could be kept is decoded in full, once, unless its pixels depend on the crop.
    if (transformer_.takes_region() && (samples_.cache.is_full() || may_be_reduced()))
      return make_from_part(sample, random, pixels);
    return transformer_.finish(decode(sample, false), random, pixels);
  } catch (const Error& error) {
    samples_.log.add_bad(sample, error.what());
    if (samples_.options.bad_files != BadFiles::replace) throw;
  }
  random = begin;
  transformer_.finish(replacement(sample), random, pixels);
}

// By the picture alone: whether it is kept must not depend on what a crop happens to be.
bool SampleMaker::may_be_reduced() {
  const LoaderOptions& o = samples_.options;
  if (o.decoding != Decoding::fast || samples_.split.store->pixel_form().is_raw() ||
      recognise_format(bytes_) != Format::jpeg)
    return false;
  try {
    const PictureHeader header = decoder_.look(bytes_);
    return header.width / 2 >= o.width && header.height / 2 >= o.height;
  } catch (const Error&) {  // decoding it says what is wrong
    return false;
  }
}

void SampleMaker::make_from_part(int64_t sample, RandomStream& random, uint8_t* pixels) {
  const Split& split = samples_.split;
  DecodeOptions options;
  options.channels = int(samples_.options.channels);
  options.form = split.store->pixel_form();
  if (samples_.options.decoding == Decoding::fast) {
    options.reduced_width = int(samples_.options.width);
    options.reduced_height = int(samples_.options.height);
  }
  DecodedPart part;
  const auto choose = [&](int width, int height) { return transformer_.draw_region(width, height, random); };
  try {
    const DecodeResult result = decoder_.decode_part(bytes_, options, choose, decoded_, part);
    if (result.warnings > 0) samples_.log.add_damaged(sample, split.path(sample));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("'{}': {}", split.path(sample), error.what()));
  }
  clock_.enter_transform();
  transformer_.finish_region(decoded_.view().crop(part.pixels), part.box, random, pixels);
}

const Image& SampleMaker::replacement(int64_t sample) {
  try {
    read(sample);
    return decode(sample, true);
  } catch (const Error&) {  // known already
  }
  const LoaderOptions& o = samples_.options;
  decoded_.resize(int(o.width), int(o.height), int(o.channels));
  std::memset(decoded_.data(), 128, decoded_.bytes());
  return transformer_.prepare(decoded_);
}

const Image& SampleMaker::decode(int64_t sample, bool tolerate_damage) {
  const Split& split = samples_.split;
  DecodeOptions options;
  options.channels = int(samples_.options.channels);
  options.form = split.store->pixel_form();
  options.tolerate_damage = tolerate_damage;
  try {
    const DecodeResult result = decoder_.decode(bytes_, options, decoded_);
    if (result.warnings > 0) samples_.log.add_damaged(sample, split.path(sample));
    clock_.enter_transform();
    const Image& prepared = transformer_.prepare(decoded_);
    if (!tolerate_damage) samples_.cache.offer(sample, prepared);
    return prepared;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("'{}': {}", split.path(sample), error.what()));
  }
}

void decode_image_file(const std::string& path, const Augmentation& augmentation, int64_t height,
                       int64_t width, int64_t channels, std::vector<uint8_t>& pixels) {
  LoaderOptions options;
  options.batch = 1;
  options.height = height, options.width = width, options.channels = channels;
  options.augmentation = augmentation;
  options.augmentation.flip = 0;
  options.augmentation.steps.clear();
  options.cache_bytes = 0;
  if (height < 1 || width < 1 || height > 65535 || width > 65535 || (channels != 1 && channels != 3))
    fail(StatusCode::invalid_argument, "pictures can't be made {} x {} x {}", height, width, channels);
  Split split;
  split.store = open_single_file_store(path);
  split.files = {0};
  split.labels = {-1};
  SampleSet samples(split, options);
  SampleMaker maker(samples);
  pixels.resize(size_t(height * width * channels));
  int32_t label = 0;
  maker.make(0, nullptr, 0, pixels.data(), label);
}

}  // namespace ren::data
