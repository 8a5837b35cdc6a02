// SPDX-License-Identifier: Apache-2.0
#include <spng.h>

#include <cstdlib>

#include "data/encode/encode.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

void check(int code) {
  if (code != 0) fail(StatusCode::internal, "a PNG file can't be made: {}", spng_strerror(code));
}

}  // namespace

std::string encode_png_file(const ImageView& picture) {
  const std::unique_ptr<spng_ctx, FreeContext> context(spng_ctx_new(SPNG_CTX_ENCODER));
  if (!context) fail(StatusCode::out_of_memory, "the PNG encoder can't be created");
  check(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.width = uint32_t(picture.width);
  header.height = uint32_t(picture.height);
  header.bit_depth = 8;
  header.color_type = picture.channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_GRAYSCALE;
  check(spng_set_ihdr(context.get(), &header));
  const size_t row = size_t(picture.width) * size_t(picture.channels);
  check(spng_encode_image(context.get(), nullptr, 0, SPNG_FMT_PNG,
                          SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE));
  for (int y = 0; y < picture.height; ++y) {
    const int code = spng_encode_row(context.get(), picture.row(y), row);
    if (code != SPNG_EOI || y + 1 < picture.height) check(code);
  }
  size_t bytes = 0;
  int code = 0;
  const std::unique_ptr<void, void (*)(void*)> memory(spng_get_png_buffer(context.get(), &bytes, &code),
                                                      std::free);
  check(code);
  return std::string(static_cast<const char*>(memory.get()), bytes);
}

}  // namespace ren::data
