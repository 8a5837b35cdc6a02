// SPDX-License-Identifier: Apache-2.0
#include "data/source/zip_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/base/status.h"

namespace ren::data {
namespace {

// What libzip reads from: a place in the file, and the bytes around it, since directories are read in pieces
// of a few bytes.
class ZipFile {
 public:
  explicit ZipFile(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {
    zip_error_init(&error_);
  }
  ~ZipFile() { zip_error_fini(&error_); }
  ZipFile(const ZipFile&) = delete;
  ZipFile& operator=(const ZipFile&) = delete;

  static zip_int64_t call(void* self, void* data, zip_uint64_t size, zip_source_cmd_t command) {
    auto* const file = static_cast<ZipFile*>(self);
    try {
      return file->answer(data, size, command);
    } catch (const std::exception&) {  // the file can't be read, or there is no memory
      zip_error_set(&file->error_, ZIP_ER_READ, errno);
      return -1;
    }
  }

 private:
  static constexpr size_t kBuffer = 4096;  // as stdio has it

  zip_int64_t answer(void* data, zip_uint64_t size, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return read(static_cast<char*>(data), size_t(size));
      case ZIP_SOURCE_CLOSE:
        return 0;
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to = zip_source_seek_compute_offset(zip_uint64_t(at_), zip_uint64_t(file_->size()),
                                                              data, size, &error_);
        if (to < 0) return -1;
        at_ = to;
        return 0;
      }
      case ZIP_SOURCE_TELL:
        return at_;
      case ZIP_SOURCE_STAT: {
        auto* const info = ZIP_SOURCE_GET_ARGS(zip_stat_t, data, size, &error_);
        if (info == nullptr) return -1;
        zip_stat_init(info);
        info->size = zip_uint64_t(file_->size());
        info->valid = ZIP_STAT_SIZE;
        return sizeof *info;
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, size);
      case ZIP_SOURCE_FREE:
        delete this;
        return 0;
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_STAT,
                                              ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SUPPORTS, -1);
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  zip_int64_t read(char* target, size_t size) {
    if (size >= kBuffer) {
      size = file_->read(at_, target, size);
    } else {
      if (at_ < buffer_at_ || at_ + int64_t(size) > buffer_at_ + int64_t(filled_)) {
        filled_ = file_->read(at_, buffer_, kBuffer);
        buffer_at_ = at_;
      }
      size = std::min(size, filled_ - size_t(at_ - buffer_at_));
      std::memcpy(target, buffer_ + (at_ - buffer_at_), size);
    }
    at_ += int64_t(size);
    return zip_int64_t(size);
  }

  const std::shared_ptr<const InputFile> file_;
  zip_error_t error_;
  int64_t at_ = 0, buffer_at_ = 0;
  size_t filled_ = 0;
  char buffer_[kBuffer];
};

[[noreturn]] void fail_zip(const std::string& path, zip_error_t& error) {
  const int code = zip_error_code_zip(&error);
  const bool system = code == ZIP_ER_OPEN || code == ZIP_ER_READ || code == ZIP_ER_SEEK;
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  fail(system ? StatusCode::io : StatusCode::invalid_data,
       "cannot open the archive '{}': {} (damaged or not fully copied?)", path, reason);
}

}  // namespace

ZipHandle open_zip(std::shared_ptr<const InputFile> file) {
  // libzip converts dates with mktime(), whose lock inside the C library ThreadSanitizer
  // can't see; opening is rare enough to take turns.
  static std::mutex turns;
  const std::lock_guard lock(turns);
  const std::string path = file->path();
  zip_error_t error;
  zip_error_init(&error);
  auto what_it_reads = std::make_unique<ZipFile>(std::move(file));
  zip_source_t* const source = zip_source_function_create(ZipFile::call, what_it_reads.get(), &error);
  if (source == nullptr) fail_zip(path, error);
  what_it_reads.release();  // the source's now
  zip_t* const archive = zip_open_from_source(source, ZIP_RDONLY, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    fail_zip(path, error);
  }
  zip_error_fini(&error);
  return ZipHandle(archive);
}

}  // namespace ren::data
