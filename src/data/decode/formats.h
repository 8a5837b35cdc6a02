// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "data/decode/decode.h"

namespace ren::data {

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  DecodeResult decode(std::string_view bytes, const DecodeOptions& options, Image& image);

  PictureHeader look(std::string_view bytes);

  // False when the file wants a full decode: then nothing was decoded, but `chosen` is set.
  bool decode_part(std::string_view bytes, const DecodeOptions& options, const ChooseRegion& choose,
                   Region& chosen, Image& image, DecodedPart& part);

 private:
  void begin(std::string_view bytes, const DecodeOptions& options);

  struct State;
  std::unique_ptr<State> state_;
};

DecodeResult decode_png(std::string_view bytes, const DecodeOptions& options, Image& image);

PictureHeader look_at_png(std::string_view bytes);

DecodeResult copy_pixels(std::string_view bytes, const DecodeOptions& options, Image& image);

// Throws invalid_data for a size that is empty or beyond the limit.
void check_size(uint64_t width, uint64_t height, const DecodeOptions& options);

// Pillow's convert("L"): ITU-R 601 in 16-bit fixed point.
inline uint8_t luma(uint8_t r, uint8_t g, uint8_t b) {
  return uint8_t((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
}

// One row of RGB to gray; the rows may be the same memory.
void rgb_to_gray(const uint8_t* rgb, uint8_t* gray, int width);

}  // namespace ren::data
