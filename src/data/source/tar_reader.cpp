// SPDX-License-Identifier: Apache-2.0
#include "data/source/tar_reader.h"

#include <algorithm>
#include <charconv>

#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr int64_t kBlock = 512;
constexpr size_t kWindow = 8192;  // a label, its header and the next one come in one read
constexpr int64_t kMostExtended = int64_t{1} << 20;
constexpr int64_t kMostPadding = 128;  // blocks behind the end that are looked at

// A field of a header: where it lies.
struct Field {
  size_t offset, bytes;
  std::string_view of(const char* header) const { return {header + offset, bytes}; }
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 8}, kPrefix{345, 155};
constexpr size_t kType = 156;

std::string text_of(std::string_view field) {
  return std::string(field.substr(0, std::min(field.find('\0'), field.size())));
}

// Octal digits among spaces and zeros, or GNU's binary form; -1 for anything else.
int64_t number_of(std::string_view field) {
  if ((uint8_t(field[0]) & 0x80) != 0) {
    uint64_t value = uint8_t(field[0]) & 0x7F;
    for (const char c : field.substr(1)) {
      if (value >> 54 != 0) return -1;
      value = value << 8 | uint8_t(c);
    }
    return int64_t(value);
  }
  size_t i = 0;
  while (i < field.size() && field[i] == ' ') ++i;
  int64_t value = 0;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) value = value * 8 + (field[i] - '0');
  const bool ended = i == field.size() || field[i] == ' ' || field[i] == '\0';
  return ended ? value : -1;
}

bool is_zero(const char* block) {
  return std::all_of(block, block + kBlock, [](char c) { return c == 0; });
}

// Old programs summed signed bytes.
bool has_right_checksum(const char* block) {
  int64_t plain = 0, with_sign = 0;
  for (size_t i = 0; i < size_t(kBlock); ++i) {
    const bool own = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.bytes;
    plain += own ? ' ' : uint8_t(block[i]);
    with_sign += own ? ' ' : static_cast<signed char>(block[i]);
  }
  const int64_t stated = number_of(kChecksum.of(block));
  return stated == plain || stated == with_sign;
}

TarEntry::Kind kind_of(char type, const std::string& name) {
  if (type == '5') return TarEntry::Kind::folder;
  if (type == '1' || type == '2') return TarEntry::Kind::link;
  if (type != '0' && type != '\0' && type != '7') return TarEntry::Kind::other;
  return name.ends_with('/') ? TarEntry::Kind::folder : TarEntry::Kind::file;
}

}  // namespace

bool is_tar_header(std::string_view block) {
  return block.size() >= size_t(kBlock) && !is_zero(block.data()) && has_right_checksum(block.data());
}

void TarReader::fail_at(int64_t offset, const std::string& what) const {
  fail(StatusCode::invalid_data, "the tar archive '{}' {} (at byte {}): copy or make it again", file_.path(),
       what, offset);
}

const char* TarReader::window(int64_t offset, size_t bytes) {
  const bool inside = offset >= buffer_at_ && offset + int64_t(bytes) <= buffer_at_ + int64_t(buffer_.size());
  if (!inside) {
    buffer_.resize(std::max(bytes, kWindow));
    buffer_.resize(file_.read(offset, buffer_.data(), buffer_.size()));
    buffer_at_ = offset;
    if (buffer_.size() < bytes) fail_at(offset, "is cut off");
  }
  return buffer_.data() + (offset - buffer_at_);
}

std::string TarReader::block_text(int64_t offset, int64_t bytes) {
  if (bytes > kMostExtended) fail_at(offset, "has a name or an extended header that is too long");
  return {window(offset, size_t(bytes)), size_t(bytes)};
}

std::string TarReader::content(const TarEntry& entry) { return block_text(entry.offset, entry.size); }

// Records "LENGTH key=value\n".
void TarReader::read_extended(const std::string& records, Extended& extended) const {
  std::string_view rest = records;
  while (!rest.empty() && rest.front() != '\0') {
    size_t length = 0;
    const auto [digits, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const size_t begin = size_t(digits - rest.data()) + 1;
    if (error != std::errc() || length > rest.size() || length < begin + 1 || *digits != ' ')
      fail_at(next_, "has a damaged extended header");
    const std::string_view record = rest.substr(begin, length - begin - 1);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail_at(next_, "has a damaged extended header");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extended.path = value;
    if (key == "size") {
      const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), extended.size);
      if (bad != std::errc() || end != value.data() + value.size() || extended.size < 0)
        fail_at(next_, "has a damaged extended header");
    }
    extended.sparse = extended.sparse || key.starts_with("GNU.sparse");
    rest.remove_prefix(length);
  }
}

// tar pads with zeros behind the end. Another archive there would be left out unnoticed.
void TarReader::check_end(int64_t offset) {
  const int64_t end = std::min(file_.size() / kBlock * kBlock, offset + kMostPadding * kBlock);
  for (; offset < end; offset += kBlock)
    if (is_tar_header({window(offset, size_t(kBlock)), size_t(kBlock)}))
      fail_at(offset, "goes on behind its end: archives were joined, which tar itself would not notice");
}

bool TarReader::next(TarEntry& entry) {
  Extended extended;
  std::string long_name;
  for (;;) {
    const int64_t at = next_;
    if (file_.size() - at < kBlock) fail_at(at, "is cut off: it has no end mark");
    const char* const header = window(at, size_t(kBlock));
    if (is_zero(header)) {
      check_end(at + kBlock);
      return false;
    }
    if (!has_right_checksum(header))
      fail_at(at, at == 0 ? "is none" : "is damaged: no header where one should be");
    const char type = header[kType];
    const bool posix = kMagic.of(header).starts_with(std::string_view("ustar\0", 6));
    std::string name = text_of(kName.of(header));
    const std::string prefix = posix ? text_of(kPrefix.of(header)) : "";
    if (!prefix.empty()) name = prefix + '/' + name;
    int64_t size = number_of(kSize.of(header));
    const bool is_extension = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (!is_extension && extended.size >= 0) size = extended.size;
    if (type >= '1' && type <= '6')
      size = 0;  // links, folders and devices have no content, whatever they say
    if (size < 0) fail_at(at, "has an entry without a size");
    if (size > file_.size() - at - kBlock) fail_at(at, fmt::format("is cut off in '{}'", name));
    entry.offset = at + kBlock;
    entry.size = size;
    next_ = entry.offset + (size + kBlock - 1) / kBlock * kBlock;
    if (type == 'x') read_extended(block_text(entry.offset, size), extended);
    if (type == 'L') long_name = text_of(block_text(entry.offset, size));
    if (is_extension) continue;
    if (type == 'S' || extended.sparse) fail_at(at, fmt::format("keeps '{}' as a sparse file", name));
    entry.name = !extended.path.empty() ? extended.path : !long_name.empty() ? long_name : name;
    entry.kind = kind_of(type, entry.name);
    return true;
  }
}

}  // namespace ren::data
