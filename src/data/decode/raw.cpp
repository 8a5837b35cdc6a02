// SPDX-License-Identifier: Apache-2.0
#include "data/decode/formats.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

// Gray to either, byte by byte; RGB to gray as for any other picture.
void convert_row(const uint8_t* const planes[3], int step, int from, int to, int width, uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    const uint8_t r = planes[0][x * step], g = planes[1][x * step], b = planes[2][x * step];
    if (to == 3)
      out[3 * x] = r, out[3 * x + 1] = g, out[3 * x + 2] = b;
    else
      out[x] = from == 1 ? r : luma(r, g, b);
  }
}

}  // namespace

DecodeResult copy_pixels(std::string_view bytes, const DecodeOptions& options, Image& image) {
  const PixelForm& form = options.form;
  check_size(uint64_t(form.width), uint64_t(form.height), options);
  const bool truncated = bytes.size() < form.bytes();
  if (truncated && !options.tolerate_damage)
    fail(StatusCode::invalid_data, "the picture has {} bytes, not the {} of its {} x {} x {} pixels",
         bytes.size(), form.bytes(), form.width, form.height, form.channels);
  std::string filled;
  if (truncated) {
    filled.assign(bytes);
    filled.resize(form.bytes(), char(128));
    bytes = filled;
  }
  image.resize(form.width, form.height, options.channels);
  const auto* const pixels = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t plane = size_t(form.width) * size_t(form.height);
  const int step = form.planar ? 1 : form.channels;
  for (int y = 0; y < form.height; ++y) {
    const uint8_t* planes[3];
    for (int c = 0; c < 3; ++c) {
      const size_t channel = form.channels == 1 ? 0 : size_t(c);
      planes[c] =
          pixels + size_t(y) * size_t(form.width) * size_t(step) + (form.planar ? channel * plane : channel);
    }
    convert_row(planes, step, form.channels, options.channels, form.width, image.row(y));
  }
  return {0, truncated};
}

}  // namespace ren::data
