// SPDX-License-Identifier: Apache-2.0
#include "data/pack/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

FileState state_of(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return {};
  return {uint64_t(info.st_dev), uint64_t(info.st_ino), int64_t(info.st_size), int64_t(info.st_mtim.tv_sec),
          int64_t(info.st_mtim.tv_nsec)};
}

}  // namespace

// Its own constructor, so that the destructor runs where the other one throws.
PartFile::PartFile(std::string target, std::string path)
    : target_(std::move(target)), path_(std::move(path)), target_before_(state_of(target_)) {}

PartFile::PartFile(const std::string& target)
    : PartFile(final_target(target), final_target(target) + ".part") {
  for (int attempt = 0; attempt < 100; ++attempt) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail_io("create");
    if (lock_is_good()) return;
    close(descriptor_);  // it was renamed or removed between the two calls
    descriptor_ = -1;
  }
  errno = EAGAIN;
  fail_io("create");
}

PartFile::~PartFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool PartFile::lock_is_good() const {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(StatusCode::io, "'{}' is being written by another process: wait for it, or name another file",
         path_);
  struct stat mine {};
  if (fstat(descriptor_, &mine) != 0) fail_io("look at");
  if (!S_ISREG(mine.st_mode))
    fail(StatusCode::io, "cannot write '{}': it is no regular file: remove it", path_);
  return has_its_name();
}

bool PartFile::has_its_name() const {
  struct stat mine {
  }, named{};
  return fstat(descriptor_, &mine) == 0 && lstat(path_.c_str(), &named) == 0 && named.st_dev == mine.st_dev &&
         named.st_ino == mine.st_ino;
}

bool PartFile::has_other_names() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) fail_io("look at");
  return info.st_nlink > 1;
}

bool PartFile::is_there(uint64_t bytes) const { return has_its_name() && size() >= bytes; }

void PartFile::begin_anew() {
  if (!has_its_name()) fail(StatusCode::io, "cannot replace '{}': it was moved or removed meanwhile", path_);
  if (unlink(path_.c_str()) != 0) fail_io("replace");
  const int made = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (made < 0) fail_io("create");
  close(descriptor_);
  descriptor_ = made;
  if (!lock_is_good()) {
    errno = EAGAIN;
    fail_io("create");
  }
}

void PartFile::fail_io(const char* verb) const {
  fail(StatusCode::io, "cannot {} '{}': {}", verb, path_, std::strerror(errno));
}

uint64_t PartFile::size() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) fail_io("look at");
  return uint64_t(info.st_size);
}

std::string PartFile::read(uint64_t offset, size_t bytes) const {
  std::string data(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = pread(descriptor_, data.data() + filled, bytes - filled, off_t(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read");
    if (got == 0) break;
    filled += size_t(got);
  }
  data.resize(filled);
  return data;
}

void PartFile::write(uint64_t offset, std::string_view data) {
  while (!data.empty()) {
    const ssize_t put = pwrite(descriptor_, data.data(), data.size(), off_t(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_io("write");
    offset += uint64_t(put);
    data.remove_prefix(size_t(put));
  }
}

void PartFile::resize(uint64_t bytes) {
  if (ftruncate(descriptor_, off_t(bytes)) != 0) fail_io("write");
}

void PartFile::flush() {
  if (fsync(descriptor_) != 0) fail_io("flush");
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
}

void PartFile::finish() {
  struct stat old {};
  if (stat(target_.c_str(), &old) == 0) fchmod(descriptor_, old.st_mode & 0777);
  if (fsync(descriptor_) != 0) fail_io("flush");
  rename_to_target();
  path_ = target_;
  flush_folder_of(target_);
}

void PartFile::rename_to_target() {
  // Another file of that name would become the target.
  if (!has_its_name()) fail(StatusCode::io, "cannot rename '{}': it was moved or removed meanwhile", path_);
  const FileState now = state_of(target_);
  if (now != FileState{} && now != target_before_)
    fail(StatusCode::io, "'{}' was made or changed by someone else meanwhile and is left as it is", target_);
  // Where there is none, the system itself sees to it that none is replaced, if the file system can do that.
  if (now == FileState{}) {
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) fail_io("rename");
  }
  if (rename(path_.c_str(), target_.c_str()) != 0) fail_io("rename");
}

void PartFile::remove() {
  if (has_its_name()) unlink(path_.c_str());
}

}  // namespace ren::data
