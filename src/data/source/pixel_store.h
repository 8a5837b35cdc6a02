// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/file_store.h"
#include "data/source/input_file.h"

namespace ren::data {

// A file of bare pixels, read by position or, where it was compressed, held in memory.
class PixelFile {
 public:
  explicit PixelFile(const std::string& path) : file_(path), size_(file_.size()) {}
  PixelFile(const std::string& path, std::string inflated)
      : file_(path), inflated_(std::move(inflated)), size_(int64_t(inflated_.size())), in_memory_(true) {}

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }
  void read(int64_t offset, void* target, size_t bytes) const;

 private:
  InputFile file_;
  std::string inflated_;
  int64_t size_;
  bool in_memory_ = false;
};

// Pictures of one form that lie in files at equal distances. The paths are FILE/NUMBER, the number counting
// from 0.
class PixelStore final : public FileStore {
 public:
  PixelStore(const std::string& uri, const std::string& folder, const PixelForm& form)
      : folder_(folder), form_(form) {
    uri_ = uri;
  }

  // Adds `count` pictures; the first is at `offset`, and each next one `stride` bytes on.
  void add(std::shared_ptr<const PixelFile> file, int64_t offset, int64_t stride, int64_t count);

  PixelForm pixel_form() const override { return form_; }
  std::string full_path(int64_t file) const override { return folder_ + '/' + std::string(path(file)); }
  FileFacts facts(int64_t file) const override;
  void read(int64_t file, std::string& bytes) const override { read_some(file, form_.bytes(), bytes); }
  std::string read_head(int64_t file, size_t limit) const override;

 private:
  struct Part {
    std::shared_ptr<const PixelFile> file;
    int64_t first, offset, stride;
  };
  void read_some(int64_t file, size_t bytes, std::string& out) const;

  std::string folder_;
  PixelForm form_;
  std::vector<Part> parts_;
};

bool is_gzip(std::string_view head);
// At most `limit` bytes of what a gzip file holds. Throws invalid_data with the path for a damaged one.
std::string inflate_gzip(const std::string& path, int64_t limit);

}  // namespace ren::data
