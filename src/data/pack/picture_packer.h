// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "data/augment/resize.h"
#include "data/dataset.h"
#include "data/decode/decode.h"
#include "data/pack/pack.h"
#include "engine/base/status.h"

namespace ren::data {

// A picture as it goes into the file.
struct PackedPicture {
  std::string bytes;
  uint32_t crc = 0;
  int width = 0, height = 0;
  bool resized = false, damaged = false;
  bool changed = false;        // it isn't what it was when packing began
  std::optional<Error> error;  // it is bad; then the rest means nothing
};

// Reads pictures, looks whether they can be decoded, and makes them smaller. One a thread.
class PicturePacker {
 public:
  explicit PicturePacker(const PackOptions& options) : options_(options) {}

  void pack(const FileStore& store, int64_t file, PackedPicture& out);

 private:
  void pack_good(const FileStore& store, PackedPicture& out);
  bool is_large(int width, int height) const {
    return options_.short_side > 0 && std::min(width, height) > options_.short_side;
  }
  void shrink(PackedPicture& out);

  const PackOptions options_;
  Decoder decoder_;
  Resizer resizer_;
  Image decoded_, resized_;
};

}  // namespace ren::data
