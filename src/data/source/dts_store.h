// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "data/source/dts_format.h"
#include "data/source/input_file.h"
#include "data/source/stores.h"

namespace ren::data {

// A packed data set, docs/dts.md. Its index is read once; a picture is one read at its place.
class DtsStore final : public FileStore {
 public:
  // Throws not_found, io, invalid_data or unsupported, naming the file.
  explicit DtsStore(const std::string& path);
  // The same of a file whose header isn't written yet.
  DtsStore(const std::string& path, const dts::Header& header);

  PixelForm pixel_form() const override { return header_.form; }
  std::string full_path(int64_t file) const override { return uri_ + '/' + std::string(path(file)); }
  FileFacts facts(int64_t file) const override;
  // Throws invalid_data for a picture whose bytes aren't those that were packed.
  void read(int64_t file, std::string& bytes) const override;
  std::string read_head(int64_t file, size_t limit) const override;

  // Reads a record with its header and compares both with the index. Throws invalid_data.
  void verify(int64_t file, std::string& bytes) const;

  void give_labels(Source& source) const;
  uint64_t bytes() const { return header_.file_bytes; }

 private:
  void read_index();

  InputFile file_;
  dts::Header header_;
  std::vector<dts::Entry> entries_;
  std::vector<dts::IndexSplit> splits_;
  std::vector<std::string> classes_;
};

}  // namespace ren::data
