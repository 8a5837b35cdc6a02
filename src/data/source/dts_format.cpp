// SPDX-License-Identifier: Apache-2.0
#include "data/source/dts_format.h"

#include <set>

#include "data/source/file_store.h"
#include "data/source/labels.h"
#include "engine/base/checksum.h"
#include "engine/base/status.h"

namespace ren::data::dts {
namespace {

constexpr std::string_view kRecordMagic = "DTSr";
constexpr uint32_t kMostSide = 65535;  // of bare pixels

// Little endian on every machine.
class Writer {
 public:
  Writer& text(std::string_view value) {
    out_.append(value);
    return *this;
  }
  Writer& u32(uint64_t value) { return number(value, 4); }
  Writer& u64(uint64_t value) { return number(value, 8); }
  Writer& counted(std::string_view value) { return u32(value.size()).text(value); }
  Writer& pad_to(size_t bytes) {
    out_.resize(bytes, '\0');
    return *this;
  }
  // CRC-32 of all that stands before it.
  Writer& checksum() { return u32(crc32(0, out_.data(), out_.size())); }
  std::string take() { return std::move(out_); }

 private:
  Writer& number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(char(value >> (8 * i)));
    return *this;
  }
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool has(uint64_t bytes) const { return bytes <= rest_.size(); }
  size_t left() const { return rest_.size(); }
  std::string_view text(size_t bytes) {
    const std::string_view value = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return value;
  }
  uint32_t u32() { return uint32_t(number(4)); }
  uint64_t u64() { return number(8); }

 private:
  uint64_t number(size_t bytes) {
    const std::string_view digits = text(bytes);
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | uint8_t(digits[i]);
    return value;
  }
  std::string_view rest_;
};

bool ends_with_checksum(std::string_view bytes) {
  const size_t body = bytes.size() - 4;
  return Reader(bytes.substr(body)).u32() == crc32(0, bytes.data(), body);
}

bool is_possible(const PixelForm& form) {
  if (form.channels == 0) return form.width == 0 && form.height == 0 && !form.planar;
  const auto is_side = [](int side) { return side >= 1 && side <= int(kMostSide); };
  return (form.channels == 1 || form.channels == 3) && is_side(form.width) && is_side(form.height) &&
         form.bytes() <= size_t(kMostFileBytes);
}

// Takes an index apart; each step says what is wrong with the file, or nothing.
class IndexReader {
 public:
  IndexReader(std::string_view bytes, const Header& header, const std::string& path)
      : reader_(bytes), header_(header), path_(path) {}

  Index read() {
    read_entries();
    read_splits();
    read_classes();
    read_paths();
    return std::move(index_);
  }

 private:
  [[noreturn]] void fail_at(const std::string& what) const {
    fail(StatusCode::invalid_data, "'{}' is damaged: {}: copy it again, or pack it again", path_, what);
  }
  void need(uint64_t bytes, const char* what) const {
    if (!reader_.has(bytes)) fail_at(fmt::format("its index ends within {}", what));
  }

  void read_entries() {
    if (header_.records == 0) fail_at("it has no pictures");
    if (header_.records > reader_.left() / kEntryBytes) fail_at("its index is too short for its pictures");
    index_.entries.reserve(size_t(header_.records));
    uint64_t free = kHeaderBytes;  // where the next record can begin
    for (uint64_t i = 0; i < header_.records; ++i) {
      Entry e;
      e.offset = reader_.u64();
      e.bytes = reader_.u32(), e.crc = reader_.u32();
      e.width = reader_.u32(), e.height = reader_.u32();
      e.label = int32_t(reader_.u32());
      e.path_bytes = reader_.u32();
      if (!lies_well(e, free)) fail_at(fmt::format("picture {} lies at an impossible place", i));
      free = e.offset + e.bytes;
      path_bytes_ += e.path_bytes;
      index_.entries.push_back(e);
    }
  }

  bool lies_well(const Entry& e, uint64_t free) const {
    const uint64_t end = header_.index_offset;
    if (e.offset % kAlignment != 0 || e.offset > end || e.offset < free + kRecordHeaderBytes) return false;
    if (header_.form.is_raw() && e.bytes != header_.form.bytes()) return false;
    return e.bytes <= uint64_t(kMostFileBytes) && e.bytes <= end - e.offset;
  }

  std::string read_text(const char* what) {
    need(4, what);
    const uint32_t bytes = reader_.u32();
    need(bytes, what);
    return std::string(reader_.text(bytes));
  }

  void read_splits() {
    need(4, "its splits");
    const uint32_t count = reader_.u32();
    uint64_t records = 0;
    std::set<std::string> names;
    for (uint32_t i = 0; i < count; ++i) {
      IndexSplit split;
      split.name = read_text("its splits");
      need(8, "its splits");
      split.records = reader_.u64();
      const bool known =
          split.name == "train" || split.name == "val" || split.name == "test" || split.name == "all";
      if (!known || !names.insert(split.name).second) fail_at(fmt::format("split {} has no good name", i));
      if (split.records == 0 || split.records > header_.records - records)
        fail_at(fmt::format("the split '{}' has {} pictures", split.name, split.records));
      records += split.records;
      index_.splits.push_back(std::move(split));
    }
    if (records != header_.records) fail_at("its splits don't have all pictures");
  }

  void read_classes() {
    need(4, "its classes");
    const uint32_t count = reader_.u32();
    if (count > kMostClasses) fail_at(fmt::format("it has {} classes", count));
    std::set<std::string> names;
    for (uint32_t i = 0; i < count; ++i) {
      index_.classes.push_back(read_text("its classes"));
      if (!names.insert(index_.classes.back()).second)
        fail_at(fmt::format("class {} has the name of another", i));
    }
    for (size_t i = 0; i < index_.entries.size(); ++i) {
      const int32_t label = index_.entries[i].label;
      const bool good = count == 0 ? label == -1 : label >= 0 && uint32_t(label) < count;
      if (!good) fail_at(fmt::format("picture {} has the label {}", i, label));
    }
  }

  void read_paths() {
    if (path_bytes_ != reader_.left()) fail_at("its paths have another length than they should");
    index_.paths = std::string(reader_.text(size_t(path_bytes_)));
  }

  Reader reader_;
  const Header& header_;
  const std::string& path_;
  uint64_t path_bytes_ = 0;
  Index index_;
};

}  // namespace

bool is_dts(std::string_view head) { return head.starts_with(kMagic); }

std::string encode(const Header& h) {
  return Writer()
      .text(kMagic)
      .u32(kVersion)
      .u32(h.complete ? 1 : 0)
      .u64(h.file_bytes)
      .u64(h.index_offset)
      .u64(h.index_bytes)
      .u32(h.index_crc)
      .u32(uint32_t(kAlignment))
      .u64(h.records)
      .u32(uint32_t(h.form.channels))
      .u32(uint32_t(h.form.width))
      .u32(uint32_t(h.form.height))
      .u32(h.form.planar ? 1 : 0)
      .u64(h.job)
      .pad_to(kHeaderBytes - 4)
      .checksum()
      .take();
}

Header decode_header(std::string_view bytes, const std::string& path) {
  if (!is_dts(bytes))
    fail(StatusCode::invalid_data, "'{}' is no packed data set: it doesn't begin as a .dts file does", path);
  if (bytes.size() < kHeaderBytes)
    fail(StatusCode::invalid_data, "'{}' is cut off: it has {} bytes: copy it again", path, bytes.size());
  Reader reader(bytes.substr(kMagic.size(), kHeaderBytes));
  const uint32_t version = reader.u32();
  if (version != kVersion)
    fail(StatusCode::unsupported,
         "'{}' is a .dts file of version {}, this program reads version {}: pack it again", path, version,
         kVersion);
  if (!ends_with_checksum(bytes.substr(0, kHeaderBytes)))
    fail(StatusCode::invalid_data, "'{}' is damaged: its header's checksum is wrong: copy it again", path);
  Header h;
  h.complete = reader.u32() == 1;
  h.file_bytes = reader.u64();
  h.index_offset = reader.u64();
  h.index_bytes = reader.u64();
  h.index_crc = reader.u32();
  const uint32_t alignment = reader.u32();
  h.records = reader.u64();
  const uint32_t channels = reader.u32(), width = reader.u32(), height = reader.u32();
  h.form.planar = reader.u32() != 0;
  h.job = reader.u64();
  const bool fits = std::max({channels, width, height}) <= kMostSide;
  if (fits) h.form.channels = int(channels), h.form.width = int(width), h.form.height = int(height);
  if (!fits || alignment != kAlignment || h.records > kMostRecords || !is_possible(h.form))
    fail(StatusCode::invalid_data, "'{}' is damaged: its header has impossible values: pack it again", path);
  return h;
}

std::string encode(const RecordHeader& h) {
  return Writer()
      .text(kRecordMagic)
      .u32(h.bytes)
      .u64(h.sample)
      .u32(h.crc)
      .u32(h.width)
      .u32(h.height)
      .pad_to(kRecordHeaderBytes - 4)
      .checksum()
      .take();
}

bool decode_record_header(std::string_view bytes, RecordHeader& h) {
  if (bytes.size() < kRecordHeaderBytes || !bytes.starts_with(kRecordMagic)) return false;
  if (!ends_with_checksum(bytes.substr(0, kRecordHeaderBytes))) return false;
  Reader reader(bytes.substr(kRecordMagic.size()));
  h.bytes = reader.u32();
  h.sample = reader.u64();
  h.crc = reader.u32();
  h.width = reader.u32(), h.height = reader.u32();
  return h.bytes <= uint64_t(kMostFileBytes);
}

std::string encode(const Index& index) {
  Writer writer;
  for (const Entry& e : index.entries)
    writer.u64(e.offset)
        .u32(e.bytes)
        .u32(e.crc)
        .u32(e.width)
        .u32(e.height)
        .u32(uint32_t(e.label))
        .u32(e.path_bytes);
  writer.u32(index.splits.size());
  for (const IndexSplit& split : index.splits) writer.counted(split.name).u64(split.records);
  writer.u32(index.classes.size());
  for (const std::string& name : index.classes) writer.counted(name);
  return writer.text(index.paths).take();
}

Index decode_index(std::string_view bytes, const Header& header, const std::string& path) {
  if (crc32(0, bytes.data(), bytes.size()) != header.index_crc)
    fail(StatusCode::invalid_data,
         "'{}' is damaged: its index's checksum is wrong: copy it again, or pack it again", path);
  return IndexReader(bytes, header, path).read();
}

}  // namespace ren::data::dts
