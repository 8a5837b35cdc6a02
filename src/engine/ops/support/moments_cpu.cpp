// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/moments_cpu.h"

#include <algorithm>

#include "engine/base/half.h"
#include "engine/ops/support/kernel.h"
#include "engine/ops/support/vector_cpu.h"

namespace ren {
namespace {

constexpr int64_t kTile = 64;     // columns
constexpr int64_t kRows = 128;    // in a block: as many roundings can pile up in a float
constexpr int64_t kBlock = 4096;  // values in a block: 16 KiB, half of a level-1 cache

// Sums and then squares around the block's own mean; the second pass finds the block in
// cache. `rest` is what rounding left of the sum of deviations.
struct Tile {
  float mean[kTile], rest[kTile], squares[kTile];
};

template <int64_t kColumns>
inline __attribute__((always_inline)) void sum_tile(const float* x, int64_t rows, int64_t stride,
                                                    int64_t columns, Tile& t) {
  const int64_t n = kColumns > 0 ? kColumns : columns;
  float sum[kTile] = {}, rest[kTile] = {}, squares[kTile] = {}, mean[kTile];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) sum[c] += x[r * stride + c];
  const float share = 1.0f / float(rows);
  for (int64_t c = 0; c < n; ++c) mean[c] = sum[c] * share;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) {
      const float d = x[r * stride + c] - mean[c];
      rest[c] += d;
      squares[c] += d * d;
    }
  for (int64_t c = 0; c < n; ++c) {
    t.mean[c] = mean[c];
    t.rest[c] = rest[c];
    t.squares[c] = squares[c];
  }
}

REN_CLONES void sum_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, Tile& t) {
  if (columns == 64) return sum_tile<64>(x, rows, stride, columns, t);
  if (columns == 32) return sum_tile<32>(x, rows, stride, columns, t);
  if (columns == 16) return sum_tile<16>(x, rows, stride, columns, t);
  sum_tile<0>(x, rows, stride, columns, t);
}

REN_CLONES void sum_row(const float* x, int64_t count, float shift, float& total, float& squares) {
  Floats sums{}, squared{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Floats d;
    REN_LOAD(d, x + i);
    d -= shift;
    sums += d;
    squared += d * d;
  }
  total = squares = 0;
  for (; i < count; ++i) {
    const float d = x[i] - shift;
    total += d;
    squares += d * d;
  }
  for (int64_t k = 0; k < kLanes; ++k) {
    total += sums[k];
    squares += squared[k];
  }
}

// A block's rows as floats, in `buffer` when they are stored in 16 bits.
const float* load_block(const void* x, DType type, int64_t first, int64_t rows, int64_t stride,
                        int64_t columns, float* buffer, int64_t& buffer_stride) {
  if (type == DType::f32) {
    buffer_stride = stride;
    return static_cast<const float*>(x) + first * stride;
  }
  buffer_stride = columns;
  const auto* halves = static_cast<const uint16_t*>(x) + first * stride;
  if (columns == stride) {
    convert_to_f32(halves, type, buffer, size_t(rows * columns));
  } else {
    for (int64_t r = 0; r < rows; ++r)
      convert_to_f32(halves + r * stride, type, buffer + r * columns, size_t(columns));
  }
  return buffer;
}

}  // namespace

void accumulate_columns(const void* x, DType type, int64_t begin, int64_t end, int64_t stride,
                        int64_t columns, Moments* moments) {
  alignas(64) float buffer[kBlock];
  const int64_t tile = std::min(columns, kTile), block = std::min(kRows, kBlock / tile);
  const auto element = int64_t(size_of(type));
  Tile t;
  for (int64_t row = begin; row < end; row += block) {
    const int64_t rows = std::min(block, end - row);
    for (int64_t column = 0; column < columns; column += tile) {
      const int64_t width = std::min(tile, columns - column);
      int64_t distance = 0;
      const float* values = load_block(static_cast<const std::byte*>(x) + column * element, type, row, rows,
                                       stride, width, buffer, distance);
      sum_columns(values, rows, distance, width, t);
      const double n = double(rows);
      for (int64_t c = 0; c < width; ++c) {
        const double rest = t.rest[c];
        moments[column + c].merge({n, t.mean[c] + rest / n, std::max(0.0, t.squares[c] - rest * rest / n)});
      }
    }
  }
}

Moments moments_of_row(const float* x, int64_t count) {
  Moments result;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t length = std::min(kBlock, count - i);
    const double n = double(length);
    float sum, squares, rest;
    sum_row(x + i, length, 0.0f, sum, squares);
    const float mean = sum / float(length);
    sum_row(x + i, length, mean, rest, squares);
    result.merge(
        {n, double(mean) + double(rest) / n, std::max(0.0, squares - double(rest) * double(rest) / n)});
  }
  return result;
}

}  // namespace ren
