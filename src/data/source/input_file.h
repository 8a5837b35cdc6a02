// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "data/source/file_store.h"

namespace ren::data {

[[noreturn]] void fail_open(const std::string& path, int reason);

// A regular file that threads read by position. All throw not_found or io with the path.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Tells whether a name leads to the same file as before, whatever is in it.
  struct Identity {
    uint64_t device = 0, inode = 0;
    bool operator==(const Identity&) const = default;
  };
  const Identity& identity() const { return identity_; }
  // Nanoseconds since 1970; 0: it can't be told.
  int64_t modified_now() const;

  // Fewer bytes than asked for: the file ends there.
  size_t read(int64_t offset, void* target, size_t bytes) const;
  // Throws invalid_data where the file ends before.
  void read_exactly(int64_t offset, void* target, size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  Identity identity_;
};

// What the file system says about a regular file.
FileFacts facts_of_file(const std::string& path);

// At most `limit` bytes of a regular file of at most kMostFileBytes.
void read_picture_file(const std::string& path, size_t limit, std::string& bytes);

// All of a regular file that may have `most` bytes; `what` says what it should be ("a list").
std::string read_text_file(const std::string& path, int64_t most, const char* what);

}  // namespace ren::data
