// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "engine/base/status.h"

namespace ren {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const auto code = errno == ENOENT ? StatusCode::not_found : StatusCode::io;
    fail(code, "cannot open '{}': {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    close(fd);
    fail(StatusCode::io, "cannot read '{}': it is a folder", path);
  }
  std::string content;
  if (info.st_size > 0) content.reserve(size_t(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      close(fd);
      fail(StatusCode::io, "cannot read '{}': {}", path, std::strerror(reason));
    }
    content.append(buffer, size_t(got));
  }
  close(fd);
  return content;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const fs::path target(path_);
  temporary_ =
      (target.parent_path() / fmt::format(".{}.tmp-{}", target.filename().string(), getpid())).string();
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_io("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void AtomicFile::fail_io(const char* verb) const {
  fail(StatusCode::io, "cannot {} '{}': {} (an earlier file of that name is unchanged)", verb, path_,
       std::strerror(errno));
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
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("replace");
  close(descriptor_);
  descriptor_ = -1;
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace ren
