// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ren {

// A file's whole content; throws not_found or io with the path and the system's reason.
std::string read_file(const std::string& path);

// Writes a file that appears complete or not at all: written beside its target as
// ".NAME.tmp-PID", flushed to disk, then renamed over it. A write that fails, a full disk
// included, throws io and leaves the old file as it was.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail_io(const char* verb) const;
  std::string path_, temporary_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view content);  // AtomicFile in one call

}  // namespace ren
