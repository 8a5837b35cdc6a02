// SPDX-License-Identifier: Apache-2.0
// Contracting a * b + c into one rounding would change pixels.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,fp-contract=off")
#endif
#include "data/augment/color.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/vector_clones.h"

namespace ren::data {
namespace {

using Table = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

template <typename Function>
Table table_of(Function&& function) {
  Table table;
  for (int i = 0; i < 256; ++i) table[size_t(i)] = uint8_t(std::clamp(int(function(i)), 0, 255));
  return table;
}

void map_bytes(const Pixels& picture, const Table& table) {
  for (size_t i = 0; i < picture.bytes(); ++i) picture.data[i] = table[picture.data[i]];
}

Histogram histogram_of(const Pixels& picture, int channel) {
  Histogram count{};
  for (size_t i = size_t(channel); i < picture.bytes(); i += size_t(picture.channels))
    ++count[picture.data[i]];
  return count;
}

// A table for each channel, from the channel's own histogram.
template <typename MakeTable>
void apply_by_channel(const Pixels& picture, MakeTable&& make) {
  for (int c = 0; c < picture.channels; ++c) {
    const Table table = make(histogram_of(picture, c));
    for (size_t i = size_t(c); i < picture.bytes(); i += size_t(picture.channels))
      picture.data[i] = table[picture.data[i]];
  }
}

Table identity() {
  return table_of([](int i) { return i; });
}

inline uint8_t luma(const uint8_t* p) {
  return uint8_t((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
}

// The luma of each pixel three times.
REN_CLONES void gray_pixels(const uint8_t* from, size_t pixels, uint8_t* to) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t gray = luma(from + 3 * i);
    to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = gray;
  }
}

REN_CLONES int sum_of_luma(const uint8_t* p, int pixels) {
  int sum = 0;
  for (int i = 0; i < pixels; ++i) sum += luma(p + 3 * i);
  return sum;
}

inline uint8_t blended(int degenerate, int value, float factor) {
  return uint8_t(std::clamp(int(float(degenerate) + factor * float(value - degenerate)), 0, 255));
}

REN_CLONES void blend_with_constant(int degenerate, uint8_t* picture, size_t bytes, float factor) {
  for (size_t i = 0; i < bytes; ++i) picture[i] = blended(degenerate, picture[i], factor);
}

constexpr int kChunk = 256;  // pixels whose hue is changed at once

struct Planes {
  uint8_t r[kChunk], g[kChunk], b[kChunk];
};

// Pillow's way from RGB to HSV in bytes, a shift of H modulo 256, and its way back; the types are those that
// C gives its expressions. There are no branches, so that the loop becomes vector code.
REN_CLONES void shift_hue(Planes& p, int count, uint8_t shift) {
  for (int i = 0; i < count; ++i) {
    const int r = p.r[i], g = p.g[i], b = p.b[i];
    const int most = std::max(r, std::max(g, b)), range = most - std::min(r, std::min(g, b));
    const float divisor = float(std::max(range, 1));  // without colour all differences are 0
    const float rc = float(most - r) / divisor, gc = float(most - g) / divisor,
                bc = float(most - b) / divisor;
    const float if_red = bc - gc, if_green = float(2.0 + double(rc) - double(bc)),
                if_blue = float(4.0 + double(gc) - double(rc));
    const float sixths = r == most ? if_red : g == most ? if_green : if_blue;
    const double turned = double(sixths) / 6.0 + 1.0;  // 5/6 to 11/6
    const float turn = float(turned >= 1.0 ? turned - 1.0 : turned);
    const float saturation = float(range) / float(std::max(most, 1));
    const int h = (std::min(int(double(turn) * 255.0), 255) + shift) & 255;
    const int s = int(double(saturation) * 255.0);

    const double sector = double(float(h)) * 6.0 / 255.0;
    const int whole = int(sector);
    const float fraction = float(sector - double(float(whole)));
    const float fs = float(double(float(s)) / 255.0);
    const double v = double(float(most));
    const int low = int(v * (1.0 - double(fs)) + 0.5);
    const int falling = int(v * (1.0 - double(fs * fraction)) + 0.5);
    const int rising = int(v * (1.0 - double(fs) * (1.0 - double(fraction))) + 0.5);
    // Each channel is one of the four values; sector 6 is 0 again. As sums of products, which don't branch.
    const int k0 = (whole == 0) | (whole == 6), k1 = whole == 1, k2 = whole == 2, k3 = whole == 3,
              k4 = whole == 4, k5 = whole == 5;
    const int red = (k0 + k5) * most + k1 * falling + k4 * rising + (k2 + k3) * low;
    const int green = (k1 + k2) * most + k3 * falling + k0 * rising + (k4 + k5) * low;
    const int blue = (k3 + k4) * most + k5 * falling + k2 * rising + (k0 + k1) * low;
    const int colored = s != 0, gray = (1 - colored) * most;
    p.r[i] = uint8_t(gray + colored * red);
    p.g[i] = uint8_t(gray + colored * green);
    p.b[i] = uint8_t(gray + colored * blue);
  }
}

}  // namespace

REN_CLONES void blend(const uint8_t* degenerate, uint8_t* picture, size_t bytes, float factor) {
  for (size_t i = 0; i < bytes; ++i) picture[i] = blended(degenerate[i], picture[i], factor);
}

void adjust_brightness(const Pixels& picture, double factor) {
  blend_with_constant(0, picture.data, picture.bytes(), float(factor));
}

void adjust_contrast(const Pixels& picture, double factor) {
  int64_t sum = 0;
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* const row = picture.row(y);
    sum += picture.channels == 3 ? sum_of_luma(row, picture.width)
                                 : std::accumulate(row, row + picture.width, 0);
  }
  const double mean = double(sum) / (double(picture.width) * picture.height);
  blend_with_constant(int(mean + 0.5), picture.data, picture.bytes(), float(factor));
}

void adjust_saturation(const Pixels& picture, double factor, Scratch& scratch) {
  if (picture.channels != 3) return;
  scratch.bytes.resize(picture.bytes());
  gray_pixels(picture.data, picture.bytes() / 3, scratch.bytes.data());
  blend(scratch.bytes.data(), picture.data, picture.bytes(), float(factor));
}

void adjust_hue(const Pixels& picture, double shift) {
  if (picture.channels != 3) return;
  const uint8_t steps = uint8_t(int(shift * 255));
  Planes planes;
  const size_t pixels = picture.bytes() / 3;
  for (size_t begin = 0; begin < pixels; begin += kChunk) {
    const int count = int(std::min<size_t>(kChunk, pixels - begin));
    uint8_t* const p = picture.data + 3 * begin;
    for (int i = 0; i < count; ++i)
      planes.r[i] = p[3 * i], planes.g[i] = p[3 * i + 1], planes.b[i] = p[3 * i + 2];
    shift_hue(planes, count, steps);
    for (int i = 0; i < count; ++i)
      p[3 * i] = planes.r[i], p[3 * i + 1] = planes.g[i], p[3 * i + 2] = planes.b[i];
  }
}

void rgb_to_grayscale(const Pixels& picture) {
  if (picture.channels == 3) gray_pixels(picture.data, picture.bytes() / 3, picture.data);
}

void posterize(const Pixels& picture, int bits) {
  const int mask = ~((1 << (8 - bits)) - 1);
  map_bytes(picture, table_of([&](int i) { return i & mask; }));
}

void solarize(const Pixels& picture, double threshold) {
  map_bytes(picture, table_of([&](int i) { return i < threshold ? i : 255 - i; }));
}

void autocontrast(const Pixels& picture) {
  apply_by_channel(picture, [](const Histogram& count) {
    int low = 0, high = 255;
    while (low < 255 && count[size_t(low)] == 0) ++low;
    while (high > 0 && count[size_t(high)] == 0) --high;
    if (high <= low) return identity();
    const double scale = 255.0 / (high - low), offset = -low * scale;
    return table_of([&](int i) { return i * scale + offset; });
  });
}

void equalize(const Pixels& picture) {
  apply_by_channel(picture, [&](const Histogram& count) {
    int last = 255;
    while (last > 0 && count[size_t(last)] == 0) --last;
    const int64_t step = (int64_t{picture.width} * picture.height - count[size_t(last)]) / 255;
    if (step == 0) return identity();  // one value only among others
    int64_t sum = step / 2;
    return table_of([&](int i) {
      const int64_t value = std::min<int64_t>(sum / step, 255);
      sum += count[size_t(i)];
      return value;
    });
  });
}

}  // namespace ren::data
