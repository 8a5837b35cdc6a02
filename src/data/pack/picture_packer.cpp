// SPDX-License-Identifier: Apache-2.0
#include "data/pack/picture_packer.h"

#include "data/augment/transform.h"
#include "data/encode/encode.h"
#include "engine/base/checksum.h"

namespace ren::data {

void PicturePacker::pack(const FileStore& store, int64_t file, PackedPicture& out) {
  out.resized = out.damaged = false;
  out.error.reset();
  try {
    store.read(file, out.bytes);  // its errors name the file
    try {
      pack_good(store, out);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("'{}': {}", store.full_path(file), error.what()));
    }
    out.crc = ren::crc32(0, out.bytes.data(), out.bytes.size());
  } catch (const Error& error) {
    if (error.code() == StatusCode::out_of_memory) throw;
    out.error = error;
  }
}

void PicturePacker::pack_good(const FileStore& store, PackedPicture& out) {
  DecodeOptions how;
  how.form = store.pixel_form();
  // A gray picture stays one: that it is gray is the only thing its decoded form doesn't tell.
  how.channels = how.form.is_raw() ? how.form.channels : decoder_.look(out.bytes).gray ? 1 : 3;
  out.damaged = decoder_.decode(out.bytes, how, decoded_).warnings > 0;
  out.width = decoded_.width();
  out.height = decoded_.height();
  if (is_large(out.width, out.height)) shrink(out);
}

void PicturePacker::shrink(PackedPicture& out) {
  short_side_size(decoded_.width(), decoded_.height(), options_.short_side, out.width, out.height);
  resizer_.resize(decoded_.view(), out.width, out.height, Filter::bilinear, resized_);
  out.bytes = encode_jpeg_file(resized_.view(), options_.quality);
  out.resized = true;
}

}  // namespace ren::data
