// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "data/decode/decode.h"
#include "data/encode/encode.h"
#include "data/inspect/inspect.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr int64_t kGap = 2;         // pixels between pictures and around them
constexpr uint8_t kGapColour = 48;  // dark gray: neither a black border nor a white one is taken for it

}  // namespace

std::string contact_sheet(const Split& split, const LoaderOptions& given) {
  LoaderOptions options = given;
  options.batch = std::min(options.batch, split.size());
  options.last_batch = LastBatch::keep;
  options.prefetch = 1;
  options.cache_bytes = 0;
  const auto columns = int64_t(std::ceil(std::sqrt(double(options.batch))));
  const int64_t rows = (options.batch + columns - 1) / std::max<int64_t>(columns, 1);
  const int64_t width = columns * (options.width + kGap) + kGap,
                height = rows * (options.height + kGap) + kGap;
  if (width > DecodeOptions().max_pixels / height)
    fail(StatusCode::invalid_argument,
         "a sheet of {} pictures of {} x {} pixels would be too large: show fewer, or smaller ones",
         options.batch, options.width, options.height);
  const std::unique_ptr<Loader> loader = make_loader(split, options);
  loader->start_epoch(0, 0);
  BatchView batch;
  loader->next(batch);
  Image sheet(int(width), int(height), int(options.channels));
  std::memset(sheet.data(), kGapColour, sheet.bytes());
  const size_t row_bytes = size_t(options.width * options.channels);
  const auto* from = static_cast<const uint8_t*>(batch.images);
  for (int64_t i = 0; i < batch.count; ++i) {
    const int64_t left = kGap + i % columns * (options.width + kGap),
                  top = kGap + i / columns * (options.height + kGap);
    for (int64_t y = 0; y < options.height; ++y, from += row_bytes)
      std::memcpy(sheet.row(int(top + y)) + left * options.channels, from, row_bytes);
  }
  return encode_png_file(sheet.view());
}

}  // namespace ren::data
