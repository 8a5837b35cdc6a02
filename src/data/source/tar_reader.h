// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/source/input_file.h"

namespace ren::data {

struct TarEntry {
  enum class Kind { file, folder, link, other };
  std::string name;
  Kind kind = Kind::other;
  int64_t offset = 0, size = 0;  // of the content
};

// True for a block that a tar archive could begin with.
bool is_tar_header(std::string_view block);

// Walks the headers of a tar archive: old, ustar, pax and GNU's with long names and large sizes. Contents are
// not read. Throws io, or invalid_data with the archive's path for what is damaged or cut off.
class TarReader {
 public:
  explicit TarReader(const InputFile& file) : file_(file) {}

  bool next(TarEntry& entry);  // false: the end
  // A short content, e.g. a label's.
  std::string content(const TarEntry& entry);

 private:
  struct Extended {
    std::string path;
    int64_t size = -1;
    bool sparse = false;
  };

  const char* window(int64_t offset, size_t bytes);
  std::string block_text(int64_t offset, int64_t bytes);
  void read_extended(const std::string& records, Extended& extended) const;
  void check_end(int64_t offset);
  [[noreturn]] void fail_at(int64_t offset, const std::string& what) const;

  const InputFile& file_;
  int64_t next_ = 0;
  std::string buffer_;
  int64_t buffer_at_ = 0;
};

}  // namespace ren::data
