// SPDX-License-Identifier: Apache-2.0
#include "data/pack/pack.h"

#include <optional>

#include <jpeglib.h>

#include "data/pack/part_file.h"
#include "data/pack/picture_packer.h"
#include "data/pipeline/in_order.h"
#include "data/pipeline/job_clock.h"
#include "data/source/dts_store.h"
#include "data/source/input_file.h"
#include "engine/base/checksum.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace ren::data {
namespace {

constexpr size_t kMostMessages = 100;

bool is_same_form(const PixelForm& a, const PixelForm& b) {
  return a.width == b.width && a.height == b.height && a.channels == b.channels && a.planar == b.planar;
}

// All pictures of all splits in one row.
class Pictures {
 public:
  struct Place {
    size_t split;
    int64_t sample;  // of the split
  };

  explicit Pictures(const Dataset& set) : set_(set) {
    for (const Split& split : set.splits) {
      if (!is_same_form(split.store->pixel_form(), set.splits[0].store->pixel_form()))
        fail(StatusCode::invalid_argument,
             "'{}' and '{}' can't be in one file: their pixels have different forms",
             set.splits[0].store->uri(), split.store->uri());
      begins_.push_back(size_);
      size_ += split.size();
    }
    if (uint64_t(size_) > dts::kMostRecords)
      fail(StatusCode::invalid_argument, "{} pictures are too many for one file (at most {})", size_,
           dts::kMostRecords);
  }

  int64_t size() const { return size_; }
  Place place(int64_t picture) const {
    size_t split = begins_.size() - 1;
    while (begins_[split] > picture) --split;
    return {split, picture - begins_[split]};
  }
  const Split& split(const Place& at) const { return set_.splits[at.split]; }
  int64_t file(const Place& at) const { return split(at).files[size_t(at.sample)]; }
  int32_t label(const Place& at) const { return split(at).labels[size_t(at.sample)]; }
  std::string_view path(const Place& at) const { return split(at).store->path(file(at)); }

  // In a folder, each file has to be asked, on network disks slowly.
  std::vector<FileFacts> facts() const {
    std::vector<FileFacts> facts(static_cast<size_t>(size_));
    parallel_for(size_, 256, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) facts[size_t(i)] = split(place(i)).store->facts(file(place(i)));
    });
    return facts;
  }

 private:
  const Dataset& set_;
  std::vector<int64_t> begins_;
  int64_t size_ = 0;
};

class Packer {
 public:
  Packer(const Dataset& set, const std::string& path, const PackOptions& options, const JobWatch& watch)
      : set_(set),
        path_(path),
        options_(options),
        watch_(watch),
        pictures_(set),
        threads_(options.threads > 0 ? options.threads : hardware_threads()) {}

  PackReport run() {
    check_places();
    part_.emplace(path_);  // before the target is looked at: it notices what comes afterwards
    is_ours_ = part_->size() == 0 && !part_->has_other_names();
    try {
      check_target();
      facts_ = pictures_.facts();
      header_.form = packed_form();
      header_.job = job_hash();
      begin();
      pack();
      check_left_out();
      finish();
    } catch (const Error& error) {
      give_up(error);
    }
    return std::move(report_);
  }

 private:
  // Bare pixels that are resized become JPEG files, all of them: they have one size.
  PixelForm packed_form() const {
    const PixelForm form = set_.splits[0].store->pixel_form();
    const bool resized = options_.short_side > 0 && std::min(form.width, form.height) > options_.short_side;
    return resized ? PixelForm{} : form;
  }

  [[noreturn]] void give_up(const Error& error) {
    if (is_ours_ && entries_.empty()) part_->remove();
    const std::string kept = what_is_kept();
    throw Error(error.code(), kept.empty() ? error.what() : fmt::format("{}\n{}", error.what(), kept));
  }

  std::string what_is_kept() const {
    const std::string& name = part_->path();
    if (part_->has_targets_name()) return fmt::format("'{}' is complete all the same", name);
    if (!is_ours_)
      return is_continued_
                 ? fmt::format(
                       "'{}' is as it was: packing again goes on with it; remove it if it isn't wanted", name)
                 : "";
    if (entries_.empty()) return "";
    if (!part_->is_there(end_))
      return fmt::format("'{}' was moved, removed or cut meanwhile: packing again starts anew", name);
    if (is_outdated_)
      return fmt::format(
          "The {} pictures packed so far are in '{}', but packing again starts anew, since the "
          "source is another now",
          entries_.size(), name);
    return fmt::format(
        "The {} pictures packed so far are in '{}': packing again goes on with them while source "
        "and options stay the same; remove it if it isn't wanted",
        entries_.size(), name);
  }
  [[noreturn]] static void stop() { fail(StatusCode::cancelled, "packing was stopped"); }

  void check_places() const {
    const std::string part = final_target(path_) + ".part";
    for (const Split& split : set_.splits) {
      if (same_file(path_, split.store->uri()))
        fail(StatusCode::invalid_argument, "'{}' is the data set itself: name another file", path_);
      if (same_file(part, split.store->uri()))
        fail(StatusCode::invalid_argument,
             "'{}', in which '{}' would be made, is the data set itself: name another file", part, path_);
    }
    check_can_write(path_, 0);
  }

  // Only a packed data set is replaced: any other file of that name is there by mistake.
  void check_target() const {
    std::string head;
    try {
      const InputFile file(path_);
      head.resize(dts::kMagic.size());
      head.resize(file.read(0, head.data(), head.size()));
    } catch (const Error& error) {
      if (error.code() == StatusCode::not_found) return;
      fail(StatusCode::invalid_argument,
           "'{}' is there already, and whether it is a .dts file can't be seen ({}): name another file",
           path_, error.what());
    }
    if (!head.empty() && !dts::is_dts(head))
      fail(StatusCode::invalid_argument, "'{}' is there already and is no .dts file: name another file",
           path_);
  }

  // Of all that the file depends on.
  uint64_t job_hash() const {
    Fnv64 hash;
    hash.add(fmt::format("dts {} short side {}", dts::kVersion, options_.short_side));
    if (options_.short_side > 0)
      hash.add(fmt::format("quality {} libjpeg-turbo {}", options_.quality, LIBJPEG_TURBO_VERSION_NUMBER));
    for (const std::string& name : set_.classes) hash.add(name);
    for (int64_t i = 0; i < pictures_.size(); ++i) {
      const Pictures::Place at = pictures_.place(i);
      if (at.sample == 0) hash.add(pictures_.split(at).name);
      hash.add(pictures_.path(at));
      const FileFacts& f = facts_[size_t(i)];
      hash.add(fmt::format("{} {} {} {}", pictures_.label(at), f.size, f.modified, f.crc));
    }
    return std::stoull(hash.hex(), nullptr, 16);
  }

  // Goes on with an unfinished file of the same job, or begins one.
  void begin() {
    JobClock clock(watch_, JobProgress::Phase::reading_part, pictures_.size());
    if (!is_ours_) {
      if (part_->has_other_names())
        begin_anew(clock, "has other names, too (hard links)");
      else if (is_mine())
        go_on(clock);
      else
        begin_anew(clock, "is of another source or other options, or cut off");
    }
    part_->resize(end_);
    is_ours_ = true;
    part_->write(0, dts::encode(header_));
    check_room();
  }

  void go_on(JobClock& clock) {
    is_continued_ = true;
    read_part(clock);
    report_.continued = int64_t(entries_.size());
    if (!clock.say(fmt::format("'{}' has {} of the {} pictures: going on with it", part_->path(),
                               entries_.size(), pictures_.size())))
      stop();
  }

  void begin_anew(JobClock& clock, const char* why) {
    check_is_unfinished();
    if (!clock.say(fmt::format("'{}' {}: starting anew", part_->path(), why))) stop();
    part_->begin_anew();
  }

  // Nothing is lost that isn't known to be an unfinished pack, or the begin of one's header.
  void check_is_unfinished() const {
    const std::string bytes = part_->read(0, dts::kHeaderBytes);
    const auto refuse = [&](const std::string& why) {
      fail(StatusCode::invalid_argument, "'{}' is there already and {}: remove it or name another file",
           part_->path(), why);
    };
    if (!dts::is_dts(bytes) && !dts::kMagic.starts_with(bytes)) refuse("is no unfinished .dts file");
    if (bytes.size() < dts::kHeaderBytes) return;
    try {
      if (dts::decode_header(bytes, part_->path()).complete) refuse("is a complete .dts file");
    } catch (const Error& error) {
      if (error.code() == StatusCode::invalid_argument) throw;
      refuse(fmt::format("can't be told to be unfinished ({})", error.what()));
    }
  }

  // A complete one, too, that only the last step was missing of.
  bool is_mine() const {
    try {
      return dts::decode_header(part_->read(0, dts::kHeaderBytes), part_->path()).job == header_.job;
    } catch (const Error&) {
      return false;
    }
  }

  // Takes over all records up to the first that isn't whole.
  void read_part(JobClock& clock) {
    for (;;) {
      dts::RecordHeader record;
      if (!dts::decode_record_header(part_->read(end_, dts::kRecordHeaderBytes), record)) return;
      if (int64_t(record.sample) < next_ || int64_t(record.sample) >= pictures_.size()) return;
      const uint64_t begin = end_ + dts::kRecordHeaderBytes;
      const std::string content = part_->read(begin, size_t(dts::aligned(begin + record.bytes) - begin));
      if (!is_whole(record, content)) return;
      if (!are_still_bad(int64_t(record.sample))) return;
      add_entry(record);
      clock.count();
      if (!clock.tell()) stop();
    }
  }

  // `content` goes to the next record, or ends with the file.
  static bool is_whole(const dts::RecordHeader& record, const std::string& content) {
    return content.size() >= record.bytes && ren::crc32(0, content.data(), record.bytes) == record.crc &&
           content.find_first_not_of('\0', record.bytes) == std::string::npos;
  }

  // Those before `until` were left out as bad; where one is good now, the file is made again from there.
  bool are_still_bad(int64_t until) {
    PicturePacker packer(options_);
    PackedPicture picture;
    for (; next_ < until; ++next_) {
      const Pictures::Place at = pictures_.place(next_);
      packer.pack(*pictures_.split(at).store, pictures_.file(at), picture);
      if (!picture.error) return false;
      note_bad(*picture.error);
    }
    return true;
  }

  void add_entry(const dts::RecordHeader& record) {
    const Pictures::Place at = pictures_.place(int64_t(record.sample));
    const std::string_view path = pictures_.path(at);
    entries_.push_back({end_ + dts::kRecordHeaderBytes, record.bytes, record.crc, record.width, record.height,
                        pictures_.label(at), uint32_t(path.size())});
    paths_ += path;
    splits_.resize(set_.splits.size());
    ++splits_[at.split];
    end_ = dts::aligned(end_ + dts::kRecordHeaderBytes + record.bytes);
    next_ = int64_t(record.sample) + 1;
  }

  // What is kept as it is takes a size that is known beforehand.
  void check_room() const {
    if (options_.short_side > 0) return;
    uint64_t bytes = 0;
    for (int64_t i = next_; i < pictures_.size(); ++i)
      bytes += dts::aligned(dts::kRecordHeaderBytes + uint64_t(std::max<int64_t>(0, facts_[size_t(i)].size)));
    check_can_write(path_, bytes);
  }

  // A picture that can't be read is bad data, too: io is what befalls the file that is written.
  void note_bad(const Error& error) {
    if (options_.bad_files != BadFiles::skip)
      throw Error(error.code() == StatusCode::io ? StatusCode::invalid_data : error.code(), error.what());
    ++report_.bad_files;
    if (report_.bad.size() < kMostMessages) report_.bad.emplace_back(error.what());
  }

  void pack() {
    JobClock clock(watch_, JobProgress::Phase::packing, pictures_.size(), next_);
    std::vector<std::unique_ptr<PicturePacker>> packers;
    for (int i = 0; i < threads_; ++i) packers.push_back(std::make_unique<PicturePacker>(options_));
    std::vector<PackedPicture> packed(slots_for(threads_));
    InOrder work;
    work.begin = next_;
    work.end = pictures_.size();
    work.threads = threads_;
    work.make = [&](int thread, int64_t item, size_t slot) {
      const Pictures::Place at = pictures_.place(item);
      const FileStore& store = *pictures_.split(at).store;
      packers[size_t(thread)]->pack(store, pictures_.file(at), packed[slot]);
      const FileFacts now = store.facts(pictures_.file(at));
      packed[slot].changed = now.size >= 0 && !is_same(now, facts_[size_t(item)]);
    };
    work.take = [&](int64_t item, size_t slot) {
      if (packed[slot].changed) refuse_changed(item);
      if (packed[slot].error)
        note_bad(*packed[slot].error);
      else
        write(item, packed[slot]);
      clock.count();
    };
    work.wait = [&] {
      if (!clock.tell()) stop();
    };
    run_in_order(work);
  }

  static bool is_same(const FileFacts& a, const FileFacts& b) {
    return a.size == b.size && a.modified == b.modified && a.crc == b.crc;
  }

  // The file would be of neither the old source nor the new one. What vanished is a bad picture.
  [[noreturn]] void refuse_changed(int64_t item) {
    is_outdated_ = true;
    const Pictures::Place at = pictures_.place(item);
    fail(StatusCode::io, "'{}' was changed after packing began: pack again when nobody changes the source",
         pictures_.split(at).path(at.sample));
  }

  void write(int64_t item, const PackedPicture& picture) {
    dts::RecordHeader record;
    record.sample = uint64_t(item);
    record.bytes = uint32_t(picture.bytes.size());
    record.crc = picture.crc;
    record.width = uint32_t(picture.width), record.height = uint32_t(picture.height);
    std::string bytes = dts::encode(record) + picture.bytes;
    bytes.resize(size_t(dts::aligned(bytes.size())), '\0');
    part_->write(end_, bytes);
    add_entry(record);
    if (picture.resized) ++report_.resized;
    if (!picture.damaged) return;
    ++report_.damaged_files;
    const Pictures::Place at = pictures_.place(item);
    if (report_.damaged.size() < kMostMessages)
      report_.damaged.push_back(pictures_.split(at).path(at.sample));
  }

  // A file that can't be trained with, since all pictures of a class or split were left out, is none.
  void check_left_out() const {
    if (report_.bad_files == 0) return;
    const auto refuse = [&](const char* what, const std::string& name) {
      fail(StatusCode::invalid_data, "all pictures of the {} '{}' are bad; the first bad one: {}", what, name,
           report_.bad[0]);
    };
    for (size_t i = 0; i < set_.splits.size(); ++i)
      if (i >= splits_.size() || splits_[i] == 0) refuse("split", set_.splits[i].name);
    std::vector<int64_t> left(set_.classes.size());
    for (int64_t i = 0; i < int64_t(splits_[0]); ++i)
      if (entries_[size_t(i)].label >= 0) ++left[size_t(entries_[size_t(i)].label)];
    for (const int32_t label : set_.splits[0].labels)
      if (label >= 0 && left[size_t(label)] == 0) refuse("class", set_.classes[size_t(label)]);
  }

  void finish() {
    dts::Index index;
    index.entries = entries_;
    index.paths = std::move(paths_);
    index.classes = set_.classes;
    for (size_t i = 0; i < set_.splits.size(); ++i) index.splits.push_back({set_.splits[i].name, splits_[i]});
    const std::string bytes = dts::encode(index);
    part_->resize(end_);  // an index that was begun before
    part_->write(end_, bytes);
    dts::Header header = header_;
    header.complete = true;
    header.records = entries_.size();
    header.index_offset = end_;
    header.index_bytes = bytes.size();
    header.index_crc = ren::crc32(0, bytes.data(), bytes.size());
    header.file_bytes = end_ + bytes.size();
    part_->flush();
    verify(header);
    // The job stays in it until it has its name: so that a run that was ended here, or couldn't rename it, is
    // known again. Nobody who reads the file looks at it.
    part_->write(0, dts::encode(header));
    part_->finish();
    header.job = 0;
    part_->write(0, dts::encode(header));
    part_->flush();
    report_.pictures = int64_t(entries_.size());
    report_.bytes = int64_t(header.file_bytes);
  }

  // Reads all of it as training will. What is wrong befell the file that is written: io.
  void verify(const dts::Header& header) {
    JobClock clock(watch_, JobProgress::Phase::verifying, int64_t(entries_.size()));
    try {
      read_back(header, clock);
    } catch (const Error& error) {
      if (error.code() != StatusCode::invalid_data && error.code() != StatusCode::not_found) throw;
      if (!part_->is_there(header.file_bytes)) throw Error(StatusCode::io, error.what());
      fail(StatusCode::io, "what was read back from the disk isn't what was written: {}", error.what());
    }
  }

  // A later run goes on behind the last of them.
  void keep_first(size_t records) {
    if (records < entries_.size()) end_ = entries_[records].offset - dts::kRecordHeaderBytes;
    entries_.resize(records);
  }

  void read_back(const dts::Header& header, JobClock& clock) {
    const DtsStore store(part_->path(), header);
    std::vector<std::string> contents(static_cast<size_t>(threads_));
    InOrder work;
    work.end = store.size();
    work.threads = threads_;
    work.make = [&](int thread, int64_t item, size_t) { store.verify(item, contents[size_t(thread)]); };
    work.take = [&](int64_t, size_t) { clock.count(); };
    work.wait = [&] {
      if (!clock.tell()) stop();
    };
    try {
      run_in_order(work);
    } catch (const Error& error) {
      if (error.code() == StatusCode::invalid_data) keep_first(size_t(clock.done()));
      throw;
    }
  }

  const Dataset& set_;
  const std::string path_;
  const PackOptions options_;
  const JobWatch& watch_;
  const Pictures pictures_;
  const int threads_;
  std::optional<PartFile> part_;
  std::vector<FileFacts> facts_;  // of all pictures, when packing began
  bool is_ours_ = false;          // nothing of an earlier job is in it any more
  bool is_continued_ = false;     // it was there, of this job
  bool is_outdated_ = false;      // the source isn't that of this job any more
  dts::Header header_;            // of the unfinished file
  std::vector<dts::Entry> entries_;
  std::string paths_;
  std::vector<uint64_t> splits_;      // records of each
  uint64_t end_ = dts::kHeaderBytes;  // where the next record begins
  int64_t next_ = 0;                  // the next picture
  PackReport report_;
};

void validate(const Dataset& set, const PackOptions& o) {
  const auto check = [](bool good, const char* field, const char* rule) {
    if (!good) fail(StatusCode::invalid_argument, "pack: {} must be {}", field, rule);
  };
  check(!set.splits.empty(), "the data set", "one with pictures");
  check(o.short_side >= 0 && o.short_side <= 65500, "short_side", "0 (as they are) to 65500");
  check(o.quality >= 1 && o.quality <= 100, "quality", "1 to 100");
  check(o.threads >= 0 && o.threads <= kMostLoaderThreads, "threads", "0 (one a processor) to 1024");
  check(o.bad_files != BadFiles::replace, "bad_files", "fail or skip: what is bad isn't packed");
}

}  // namespace

PackReport pack_dataset(const Dataset& set, const std::string& path, const PackOptions& options,
                        const JobWatch& watch) {
  validate(set, options);
  return Packer(set, path, options, watch).run();
}

}  // namespace ren::data
