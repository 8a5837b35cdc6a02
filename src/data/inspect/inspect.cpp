// SPDX-License-Identifier: Apache-2.0
#include "data/inspect/inspect.h"

#include <algorithm>

#include "data/decode/decode.h"
#include "data/pipeline/in_order.h"
#include "data/pipeline/job_clock.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace ren::data {
namespace {

constexpr size_t kMostListed = 10'000;
constexpr size_t kHeadSteps[] = {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t(kMostFileBytes)};

// What is seen of one picture.
struct Look {
  PictureHeader header;
  int64_t bytes = 0;
  bool damaged = false;
  std::string reason;  // it is broken
};

class Inspector {
 public:
  explicit Inspector(bool quick) : quick_(quick) {}

  void inspect(const FileStore& store, int64_t file, Look& out) {
    out = {};
    try {
      const PixelForm form = store.pixel_form();
      if (quick_)
        look(store, file, form, out);
      else
        decode(store, file, form, out);
    } catch (const Error& error) {
      if (error.code() == StatusCode::out_of_memory) throw;
      out.reason = error.what();
    }
  }

 private:
  static PictureHeader header_of(const PixelForm& form) {
    return {Format::unknown, form.width, form.height, form.channels == 1};
  }

  void decode(const FileStore& store, int64_t file, const PixelForm& form, Look& out) {
    store.read(file, bytes_);
    out.bytes = int64_t(bytes_.size());
    out.header = form.is_raw() ? header_of(form) : decoder_.look(bytes_);
    DecodeOptions how;
    how.form = form;
    how.channels = out.header.gray ? 1 : 3;
    out.damaged = decoder_.decode(bytes_, how, image_).warnings > 0;
  }

  // As much as it takes: profiles and thumbnails may stand before the size.
  void look(const FileStore& store, int64_t file, const PixelForm& form, Look& out) {
    out.bytes = form.is_raw() ? int64_t(form.bytes()) : store.facts(file).size;
    if (form.is_raw()) {
      out.header = header_of(form);
      return;
    }
    for (const size_t limit : kHeadSteps) {
      const std::string head = store.read_head(file, limit);
      try {
        out.header = decoder_.look(head);
        return;
      } catch (const Error&) {
        if (head.size() < limit || limit == kHeadSteps[3]) throw;
      }
    }
  }

  const bool quick_;
  Decoder decoder_;
  std::string bytes_;
  Image image_;
};

SizeRange range_of(std::vector<int64_t>& values) {
  if (values.empty()) return {};
  const auto middle = values.begin() + int64_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, *middle, *most};
}

// The message without the path that it begins with, which stands beside it.
std::string without_path(const std::string& reason, const std::string& path) {
  const std::string begin = fmt::format("'{}': ", path);
  return reason.starts_with(begin) ? reason.substr(begin.size()) : reason;
}

class Collector {
 public:
  explicit Collector(Findings& out) : out_(out) {}

  void add(const Split& split, int64_t sample, const Look& look) {
    const std::string path = split.path(sample);
    if (!look.reason.empty()) {
      ++out_.broken_files;
      ++out_.splits.back().broken;
      if (out_.broken.size() < kMostListed) out_.broken.push_back({path, without_path(look.reason, path)});
      return;
    }
    const Format format = look.header.format;
    ++out_.formats[format == Format::unknown ? "bare pixels" : name_of(format)];
    if (look.header.gray) ++out_.gray;
    widths_.push_back(look.header.width);
    heights_.push_back(look.header.height);
    bytes_.push_back(look.bytes);
    if (!look.damaged) return;
    ++out_.damaged_files;
    if (out_.damaged.size() < kMostListed) out_.damaged.push_back(path);
  }

  void finish() {
    out_.width = range_of(widths_);
    out_.height = range_of(heights_);
    out_.bytes = range_of(bytes_);
  }

 private:
  Findings& out_;
  std::vector<int64_t> widths_, heights_, bytes_;
};

}  // namespace

Findings inspect_dataset(const Dataset& set, const InspectOptions& options, const JobWatch& watch) {
  if (options.threads < 0 || options.threads > kMostLoaderThreads)
    fail(StatusCode::invalid_argument, "inspect: threads must be 0 (one a processor) to 1024");
  Findings found;
  found.classes = set.classes;
  for (const Split& split : set.splits) found.pictures += split.size();
  const int threads = options.threads > 0 ? options.threads : hardware_threads();
  std::vector<std::unique_ptr<Inspector>> inspectors;
  for (int i = 0; i < threads; ++i) inspectors.push_back(std::make_unique<Inspector>(options.quick));
  std::vector<Look> looks(slots_for(threads));
  JobClock clock(watch, JobProgress::Phase::inspecting, found.pictures);
  Collector collector(found);
  for (const Split& split : set.splits) {
    found.splits.push_back({split.name, split.size(), 0, std::vector<int64_t>(set.classes.size())});
    for (const int32_t label : split.labels)
      if (label >= 0) ++found.splits.back().by_class[size_t(label)];
    InOrder work;
    work.end = split.size();
    work.threads = threads;
    work.make = [&](int thread, int64_t sample, size_t slot) {
      inspectors[size_t(thread)]->inspect(*split.store, split.files[size_t(sample)], looks[slot]);
    };
    work.take = [&](int64_t sample, size_t slot) {
      collector.add(split, sample, looks[slot]);
      clock.count();
    };
    work.wait = [&] {
      if (!clock.tell()) fail(StatusCode::cancelled, "inspecting was stopped");
    };
    run_in_order(work);
  }
  collector.finish();
  return found;
}

}  // namespace ren::data
