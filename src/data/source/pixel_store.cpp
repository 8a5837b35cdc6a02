// SPDX-License-Identifier: Apache-2.0
#include "data/source/pixel_store.h"

#include <zlib.h>

#include <cstring>

#include "engine/base/checksum.h"
#include "engine/base/status.h"

namespace ren::data {

void PixelFile::read(int64_t offset, void* target, size_t bytes) const {
  if (in_memory_)
    std::memcpy(target, inflated_.data() + offset, bytes);
  else
    file_.read_exactly(offset, target, bytes);
}

void PixelStore::add(std::shared_ptr<const PixelFile> file, int64_t offset, int64_t stride, int64_t count) {
  const std::string name = file->path().substr(file->path().rfind('/') + 1);
  const int64_t first = size();
  for (int64_t i = 0; i < count; ++i) paths_.add(fmt::format("{}/{:05}", name, i));
  parts_.push_back({std::move(file), first, offset, stride});
}

void PixelStore::read_some(int64_t file, size_t bytes, std::string& out) const {
  auto part = parts_.end() - 1;
  while (part->first > file) --part;
  out.resize(bytes);
  part->file->read(part->offset + (file - part->first) * part->stride, out.data(), bytes);
}

std::string PixelStore::read_head(int64_t file, size_t limit) const {
  std::string head;
  read_some(file, std::min(limit, form_.bytes()), head);
  return head;
}

// Pixels of equal size tell nothing apart: their checksum does, and they are small.
FileFacts PixelStore::facts(int64_t file) const {
  FileFacts facts;
  std::string bytes;
  try {
    read(file, bytes);
  } catch (const Error&) {
    return facts;
  }
  facts.size = int64_t(bytes.size());
  facts.has_crc = true;
  facts.crc = ren::crc32(0, bytes.data(), bytes.size());
  return facts;
}

bool is_gzip(std::string_view head) { return head.starts_with("\x1F\x8B"); }

std::string inflate_gzip(const std::string& path, int64_t limit) {
  constexpr size_t kChunk = size_t{1} << 20;
  const InputFile file(path);
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK)
    fail(StatusCode::out_of_memory, "no memory to unpack '{}'", path);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ender(&stream, inflateEnd);
  std::string in(kChunk, '\0'), out;
  int64_t at = 0;
  int code = Z_OK;
  while (int64_t(out.size()) < limit) {
    if (stream.avail_in == 0) {
      stream.avail_in = uInt(file.read(at, in.data(), kChunk));
      stream.next_in = reinterpret_cast<Bytef*>(in.data());
      at += stream.avail_in;
      if (stream.avail_in == 0 && code == Z_STREAM_END) break;
      if (stream.avail_in == 0) fail(StatusCode::invalid_data, "'{}' is cut off: copy it again", path);
    }
    if (code == Z_STREAM_END) inflateReset(&stream);  // another member, as gzip appends them
    const size_t filled = out.size(),
                 room = size_t(std::min<int64_t>(int64_t(kChunk), limit - int64_t(filled)));
    out.resize(filled + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data()) + filled;
    stream.avail_out = uInt(room);
    code = inflate(&stream, Z_NO_FLUSH);
    out.resize(filled + room - stream.avail_out);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      fail(StatusCode::invalid_data, "'{}' is damaged ({}): copy it again", path,
           stream.msg != nullptr ? stream.msg : "gzip");
  }
  return out;
}

}  // namespace ren::data
