// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ren::data {

// What tells a file from one that took its place: all zero where there is none.
struct FileState {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, seconds = 0, nanoseconds = 0;  // of the last change
  bool operator==(const FileState&) const = default;
};

// TARGET.part: a file that takes long to make, and that a later process can go on with. Nobody else writes it
// at the same time. All throw io with its name and the system's reason.
class PartFile {
 public:
  // Opens or creates it; `target` is what it becomes (links are followed).
  explicit PartFile(const std::string& target);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const;
  // At most `bytes` from there.
  std::string read(uint64_t offset, size_t bytes) const;
  void write(uint64_t offset, std::string_view data);
  void resize(uint64_t bytes);
  bool has_other_names() const;  // hard links: what is written would change there, too
  // A new, empty file of that name; what had it stays as it was under its other names.
  void begin_anew();
  // Whether it still has its name and at least so many bytes: nobody moved, removed or cut it.
  bool is_there(uint64_t bytes) const;
  // To the disk; what is read afterwards comes from there, where the system can do that.
  void flush();
  // Flushes it and gives it the target's name and, where there is an old one, its permissions. Only what had
  // that name when this object was made is replaced.
  void finish();
  bool has_targets_name() const { return path_ == target_; }  // finish() got that far; path() is it, too
  void remove();

 private:
  PartFile(std::string target, std::string path);
  [[noreturn]] void fail_io(const char* verb) const;
  bool lock_is_good() const;
  bool has_its_name() const;
  void rename_to_target();

  std::string target_, path_;
  FileState target_before_;
  int descriptor_ = -1;
};

}  // namespace ren::data
