// SPDX-License-Identifier: Apache-2.0
#include "data/source/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/status.h"

namespace ren::data {
namespace {

int64_t modification_of(const struct stat& info) {
  return int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + int64_t(info.st_mtim.tv_nsec);
}

}  // namespace

void fail_open(const std::string& path, int reason) {
  fail(reason == ENOENT || reason == ENOTDIR ? StatusCode::not_found : StatusCode::io, "cannot open '{}': {}",
       path, std::strerror(reason));
}

// O_NONBLOCK keeps a FIFO that took the file's place since the listing from blocking the thread for ever.
InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_open(path, errno);
  struct stat info {};
  const int reason = fstat(descriptor_, &info) != 0 ? errno : 0;
  if (reason == 0 && S_ISREG(info.st_mode)) {
    size_ = int64_t(info.st_size);
    identity_ = {uint64_t(info.st_dev), uint64_t(info.st_ino)};
    return;
  }
  close(descriptor_);
  if (reason != 0) fail_open(path, reason);
  fail(StatusCode::io, "cannot read '{}': it is not a regular file", path);
}

InputFile::~InputFile() { close(descriptor_); }

int64_t InputFile::modified_now() const {
  struct stat info {};
  return fstat(descriptor_, &info) == 0 ? modification_of(info) : 0;
}

size_t InputFile::read(int64_t offset, void* target, size_t bytes) const {
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = pread(descriptor_, static_cast<char*>(target) + filled, bytes - filled,
                              off_t(offset) + off_t(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(StatusCode::io, "cannot read '{}': {}", path_, std::strerror(errno));
    if (got == 0) break;
    filled += size_t(got);
  }
  return filled;
}

void InputFile::read_exactly(int64_t offset, void* target, size_t bytes) const {
  if (read(offset, target, bytes) != bytes)
    fail(StatusCode::invalid_data, "'{}' was shortened while it was used", path_);
}

FileFacts facts_of_file(const std::string& path) {
  struct stat info {};
  FileFacts facts;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return facts;
  facts.size = int64_t(info.st_size);
  facts.modified = modification_of(info);
  return facts;
}

void read_picture_file(const std::string& path, size_t limit, std::string& bytes) {
  const InputFile file(path);
  if (file.size() > kMostFileBytes)
    fail(StatusCode::invalid_data, "'{}' has {} bytes: too large for a picture (at most {})", path,
         file.size(), kMostFileBytes);
  bytes.resize(std::min(limit, size_t(file.size())));
  bytes.resize(file.read(0, bytes.data(), bytes.size()));  // shortened meanwhile: what there is
}

std::string read_text_file(const std::string& path, int64_t most, const char* what) {
  const InputFile file(path);
  if (file.size() > most)
    fail(StatusCode::invalid_data, "'{}' has {} bytes: too large for {} (at most {})", path, file.size(),
         what, most);
  std::string text(size_t(file.size()), '\0');
  text.resize(file.read(0, text.data(), text.size()));
  return text;
}

}  // namespace ren::data
