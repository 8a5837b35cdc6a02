// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ren {

// A file's whole content; throws not_found or io with the path and the system's reason.
std::string read_file(const std::string& path);

// The file that writing to `path` changes: links are followed, the last one too. It need not exist.
std::string final_target(const std::string& path);
// Whether two paths lead to one file: by links, "..", or as hard links.
bool same_file(const std::string& a, const std::string& b);

// Writes a file that appears complete or not at all: written beside its target, flushed to disk, then
// renamed over it; the folder is flushed, too. A write that fails, a full disk included, throws io and
// leaves the old file as it was. Where `path` is a link, the file it leads to is replaced and the link
// stays. A new file takes the permissions of the one that it replaces.
//
// The temporary file is called ".ren-HASH-PID-N.tmp" (HASH of the target's name), so that its name is short
// however long the target's is. Those that killed processes left are removed by the next write of the
// same target: when the process is gone, and nobody holds the file's lock (another container's processes
// have numbers of their own).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();
  const std::string& temporary() const { return temporary_; }  // where it lies until commit()

 private:
  [[noreturn]] void fail_io(const char* verb) const;
  void create_temporary(const std::string& stem);
  std::string path_, target_, folder_, temporary_;
  int descriptor_ = -1;
};

// A file's name is on disk only when its folder is. `path` is absolute; throws io.
void flush_folder_of(const std::string& path);

void write_file(const std::string& path, std::string_view content);  // AtomicFile in one call

// Throws what writing `bytes` to the file would throw, as far as that can be told before: the file is begun
// and removed, and the room that its file system has left is looked at.
void check_can_write(const std::string& path, uint64_t bytes);

}  // namespace ren
