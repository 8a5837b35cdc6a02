// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "engine/base/checksum.h"
#include "engine/base/status.h"

namespace ren {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  // A pipe without a writer would be waited for, a device might never end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const auto code = errno == ENOENT ? StatusCode::not_found : StatusCode::io;
    fail(code, "cannot open '{}': {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
    close(fd);
    fail(StatusCode::io, "cannot read '{}': it is {}", path,
         S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
  }
  // Read into place, with room to see that the file ends where it said: a growing one is read on.
  std::string content;
  size_t filled = 0;
  for (size_t room = size_t(std::max<off_t>(info.st_size, 0)) + 1;; room += room / 2 + 4096) {
    content.resize(room);
    ssize_t got = 1;
    while (filled < content.size() && got != 0) {
      got = read(fd, content.data() + filled, content.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        const int reason = errno;
        close(fd);
        fail(StatusCode::io, "cannot read '{}': {}", path, std::strerror(reason));
      }
      filled += size_t(got);
    }
    if (got == 0) break;
  }
  content.resize(filled);
  close(fd);
  return content;
}

namespace {

constexpr const char* kTemporaryEnd = ".tmp";

std::string temporary_stem(const std::string& name) {
  Fnv64 hash;
  hash.add(name);
  return fmt::format(".ren-{}-", hash.hex());
}

bool is_gone(pid_t process) { return kill(process, 0) != 0 && errno == ESRCH; }

// The process of a temporary file's name, or 0.
pid_t process_of(std::string_view name, const std::string& stem) {
  if (!name.starts_with(stem) || !name.ends_with(kTemporaryEnd)) return 0;
  const std::string_view number = name.substr(stem.size(), name.find('-', stem.size()) - stem.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), process);
  return error == std::errc() && end == number.data() + number.size() && process > 0 ? process : 0;
}

// Nobody lives who would go on with it: a writer keeps the file locked.
bool is_abandoned(const std::string& path, pid_t process) {
  if (process != getpid() && !is_gone(process)) return false;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool free = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  close(descriptor);
  return free;
}

void remove_abandoned(const std::string& folder, const std::string& stem) {
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing)) {
    const pid_t process = process_of(entry->d_name, stem);
    if (process == 0) continue;
    const std::string path = folder + '/' + entry->d_name;
    if (is_abandoned(path, process)) unlink(path.c_str());
  }
  closedir(listing);
}

const char* kind_of(mode_t mode) { return S_ISDIR(mode) ? "it is a folder" : "it is no regular file"; }

}  // namespace

std::string final_target(const std::string& path) {
  fs::path target(path);
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const fs::path folder = fs::canonical(parent, error);
  if (error) return fs::absolute(target, error).lexically_normal().string();
  return (folder / target.filename()).string();
}

bool same_file(const std::string& a, const std::string& b) {
  if (final_target(a) == final_target(b)) return true;
  struct stat one {
  }, other{};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(final_target(path_)) {
  const fs::path target(target_);
  folder_ = target.parent_path().string();
  const std::string name = target.filename().string();
  if (name.empty() || path_.back() == '/')
    fail(StatusCode::io, "cannot create '{}': it names no file", path_);
  struct stat old {};
  const bool exists = lstat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) fail_io("create");  // a name that is too long, for one
  if (exists && !S_ISREG(old.st_mode))
    fail(StatusCode::io, "cannot create '{}': {}", path_, kind_of(old.st_mode));
  create_temporary(temporary_stem(name));
  if (exists) fchmod(descriptor_, old.st_mode & 0777);
}

void AtomicFile::create_temporary(const std::string& stem) {
  static std::mutex mutex;  // no other thread takes a file for abandoned between its making and its lock
  static std::atomic<int64_t> count{0};
  const std::lock_guard lock(mutex);
  remove_abandoned(folder_, stem);
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = fmt::format("{}/{}{}-{}{}", folder_, stem, getpid(), count++, kTemporaryEnd);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      if (errno == EEXIST) continue;
      fail_io("create");
    }
    struct stat made {};
    flock(descriptor_, LOCK_EX | LOCK_NB);  // some file systems have no locks; then none is needed to write
    if (fstat(descriptor_, &made) == 0 && made.st_nlink > 0) return;
    close(descriptor_);  // another container's process removed it just before the lock
    descriptor_ = -1;
  }
  errno = EEXIST;
  fail_io("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  unlink(temporary_.c_str());
  close(descriptor_);
}

void AtomicFile::fail_io(const char* verb) const {
  const int reason = errno;
  struct stat old {};
  const bool exists = lstat(target_.c_str(), &old) == 0;
  fail(StatusCode::io, "cannot {} '{}': {}{}", verb, path_, std::strerror(reason),
       exists ? " (the earlier file of that name is unchanged)" : "");
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, p, bytes);
    if (put < 0) {
      if (errno == EINTR) continue;
      fail_io("write");
    }
    p += put;
    bytes -= size_t(put);
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) fail_io("flush");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_io("replace");
  close(descriptor_);
  descriptor_ = -1;
  flush_folder_of(target_);
}

void flush_folder_of(const std::string& path) {
  // Some file systems can't flush a folder.
  const int folder = open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool lost = folder >= 0 && fsync(folder) != 0 && errno == EIO;
  if (folder >= 0) close(folder);
  if (lost) fail(StatusCode::io, "'{}' was written, but its folder cannot be flushed to disk", path);
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void check_can_write(const std::string& path, uint64_t bytes) {
  { const AtomicFile probe(path); }
  const std::string folder = fs::path(final_target(path)).parent_path().string();
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) != 0) return;
  const uint64_t free = uint64_t(room.f_bavail) * room.f_frsize;
  if (free < bytes) fail(StatusCode::io, "'{}' takes {} bytes, {} are free there", path, bytes, free);
}

}  // namespace ren
