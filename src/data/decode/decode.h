// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/decode/image.h"

namespace ren::data {

enum class Format { unknown, empty, jpeg, png, gif, webp, bmp, tiff, heif, jpeg2000 };

constexpr size_t kFormatHeadBytes = 16;  // what recognise_format looks at

// By content: file names lie.
Format recognise_format(std::string_view head);
const char* name_of(Format format);
inline bool is_decodable(Format format) { return format == Format::jpeg || format == Format::png; }

struct DecodeOptions {
  int channels = 3;  // 3 = RGB, 1 = gray (Pillow's L of the RGB picture)
  bool tolerate_damage =
      false;  // keep what could be decoded; the rest is mid-gray (of a PNG: from the damaged chunk on)
  int64_t max_pixels = 178'956'970;  // larger ones are refused, as Pillow does
  PixelForm form;                    // of bare pixels; what they look like is then not asked
  // Of decode_part(): the size that the part will be reduced to. A JPEG file whose part has twice, four or
  // eight times as many pixels a side is decoded at a half, a quarter or an eighth of its size, by the DCT.
  // 0: never, all pixels are exact.
  int reduced_width = 0, reduced_height = 0;
};

// Where the chosen part of a picture lies in what was decoded.
struct DecodedPart {
  Region pixels;  // of the image: all that the part touches
  Box box;        // the part within these; at their edges unless the picture was decoded at a reduced size
};

// Chooses the part that is needed, given width and height of the picture.
using ChooseRegion = std::function<Region(int width, int height)>;

struct DecodeResult {
  int warnings = 0;        // of the JPEG decoder: damage that Pillow passes over as well
  bool truncated = false;  // only with tolerate_damage
};

// What a picture's header tells, before anything is decoded.
struct PictureHeader {
  Format format = Format::unknown;
  int width = 0, height = 0;
  bool gray = false;  // one channel holds all that is in it
};

// Decodes JPEG, PNG and bare pixels to bytes that equal Pillow's convert("RGB") or convert("L"), except
// that 16-bit gray keeps its high byte (Pillow's clamps). Keeps buffers from call to call;
// one a thread.
class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Throws invalid_data or unsupported, saying what is wrong but not with which file;
  // `image` is then undefined.
  DecodeResult decode(std::string_view bytes, const DecodeOptions& options, Image& image);

  // Decodes at least the chosen part, with the bytes that decode() gives there (but for reduced_width and
  // _height); `part` becomes its place in `image`. Damage below the part may go unnoticed, but not a missing
  // end. `choose` is called once, if at all.
  DecodeResult decode_part(std::string_view bytes, const DecodeOptions& options, const ChooseRegion& choose,
                           Image& image, DecodedPart& part);

  // Of JPEG and PNG files, from their first bytes: as many as it takes to the picture's size. Throws as
  // decode().
  PictureHeader look(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ren::data
