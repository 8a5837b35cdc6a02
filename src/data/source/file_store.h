// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/decode/image.h"
#include "data/source/path_list.h"

namespace ren::data {

// Larger files are refused: no picture for training has that many bytes, but devices, accidents and archives
// made to exhaust memory do.
constexpr int64_t kMostFileBytes = int64_t{256} << 20;

// What can be told about a file's content without reading it.
struct FileFacts {
  int64_t size = -1;     // -1: it is gone or can't be looked at
  int64_t modified = 0;  // of the file it lies in, nanoseconds since 1970; 0: not asked for
  bool has_crc = false;
  uint32_t crc = 0;  // CRC-32 of the content, which archives keep
};

// The files below a folder or inside an archive, or the pictures of a list or a binary data set, listed once.
// Where classes are folders, they are sorted by the bytes of their paths ('/' between folders, UTF-8), and
// hidden names (a leading dot) and __MACOSX are left out.
class FileStore {
 public:
  virtual ~FileStore() = default;

  const std::string& uri() const { return uri_; }
  int64_t size() const { return paths_.size(); }
  std::string_view path(int64_t file) const { return paths_[file]; }    // below the root
  const std::vector<std::string>& folders() const { return folders_; }  // sorted, below the root

  // The form of all pictures where they are bare pixels, else "encoded": JPEG or PNG files.
  virtual PixelForm pixel_form() const { return {}; }

  // Callable from several threads at once; does not throw.
  virtual FileFacts facts(int64_t file) const = 0;

  // For messages: what a user would type to find the file.
  virtual std::string full_path(int64_t file) const = 0;

  // Replaces `bytes` by the file's content; of an archive's entry that is no picture by its first bytes, by
  // these alone: a decoder needs no more to refuse it. Callable from several threads at once.
  // Throws io, not_found or invalid_data with the path.
  virtual void read(int64_t file, std::string& bytes) const = 0;

  // The first bytes only (at most `limit`), to recognise the content.
  virtual std::string read_head(int64_t file, size_t limit) const = 0;

 protected:
  std::string uri_;
  PathList paths_;
  std::vector<std::string> folders_;
};

// What open_source() takes, without its labels. For `allow_single_file`, one picture, too.
// Throws not_found, io or invalid_data.
std::shared_ptr<const FileStore> open_file_store(const std::string& uri, bool allow_single_file = false);

}  // namespace ren::data
