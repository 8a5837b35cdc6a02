// SPDX-License-Identifier: Apache-2.0
#include <spng.h>

#include <cstring>
#include <vector>

#include "data/decode/formats.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

constexpr size_t kChunkLimit = size_t{64} << 20;  // of one text or colour profile

[[noreturn]] void fail_png(int code) {
  const bool truncated = code == SPNG_IO_EOF || code == SPNG_EOF || code == SPNG_EIDAT_TOO_SHORT;
  if (truncated) fail(StatusCode::invalid_data, "the PNG file is truncated");
  fail(StatusCode::invalid_data, "the PNG file is damaged: {}", spng_strerror(code));
}

void image_to_gray(Image& rgb, Image& gray) {
  gray.resize(rgb.width(), rgb.height(), 1);
  for (int y = 0; y < rgb.height(); ++y) rgb_to_gray(rgb.row(y), gray.row(y), rgb.width());
}

}  // namespace

namespace {

using Context = std::unique_ptr<spng_ctx, FreeContext>;

// A decoder that has read the header.
Context open_png(std::string_view bytes, const DecodeOptions& options, spng_ihdr& header) {
  Context context(spng_ctx_new(0));
  if (!context) fail(StatusCode::out_of_memory, "the PNG decoder can't be created");
  spng_set_image_limits(context.get(), INT32_MAX, INT32_MAX);  // check_size() below says it better
  spng_set_chunk_limits(context.get(), kChunkLimit, kChunkLimit);
  if (const int code = spng_set_png_buffer(context.get(), bytes.data(), bytes.size()); code != 0)
    fail_png(code);
  if (const int code = spng_get_ihdr(context.get(), &header); code != 0) fail_png(code);
  check_size(header.width, header.height, options);
  return context;
}

}  // namespace

PictureHeader look_at_png(std::string_view bytes) {
  spng_ihdr header;
  open_png(bytes, {}, header);
  const bool gray =
      header.color_type == SPNG_COLOR_TYPE_GRAYSCALE || header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
  return {Format::png, int(header.width), int(header.height), gray};
}

DecodeResult decode_png(std::string_view bytes, const DecodeOptions& options, Image& image) {
  spng_ihdr header;
  const Context context = open_png(bytes, options, header);

  Image whole;  // where the picture is wanted gray, its RGB form
  Image& rgb = options.channels == 3 ? image : whole;
  rgb.resize(int(header.width), int(header.height), 3);
  if (options.tolerate_damage) std::memset(rgb.data(), 128, rgb.bytes());
  // RGB8 takes the high byte of 16 bits, looks palettes up, widens 1, 2 and 4 bits and drops alpha.
  const int code = spng_decode_image(context.get(), rgb.data(), rgb.bytes(), SPNG_FMT_RGB8, 0);
  if (code != 0 && !options.tolerate_damage) fail_png(code);
  if (options.channels == 1) image_to_gray(whole, image);
  return {0, code != 0};
}

}  // namespace ren::data
