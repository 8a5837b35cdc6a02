// SPDX-License-Identifier: Apache-2.0
// Contracting a * b + c into one rounding would make pixels depend on the processor.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,fp-contract=off")
#endif
#include "data/augment/filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/augment/color.h"
#include "engine/base/vector_clones.h"

namespace ren::data {
namespace {

// Nine values with weight 1 and the middle once more with 4, by 13, rounded: Pillow's SMOOTH. Its FP32 sum
// is never nearer than 1/26 to where the result changes, so whole numbers give the same.
REN_CLONES void smooth_row(const uint8_t* above, const uint8_t* here, const uint8_t* below, int begin,
                           int end, int step, uint8_t* out) {
  for (int i = begin; i < end; ++i) {
    const int sum = above[i - step] + above[i] + above[i + step] + here[i - step] + 5 * here[i] +
                    here[i + step] + below[i - step] + below[i] + below[i + step];
    out[i] = uint8_t((2 * sum + 13) / 26);
  }
}

std::vector<float> gaussian_taps(int size, double sigma) {
  const double limit = (size - 1) / (2.0 * std::sqrt(2.0));
  std::vector<double> weights(size_t(size), 1.0);
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    const double x = size > 1 ? (-limit + 2 * limit * i / (size - 1)) / sigma : 0.0;
    sum += weights[size_t(i)] = std::exp(-x * x);
  }
  std::vector<float> taps;
  for (const double weight : weights) taps.push_back(float(weight / sum));
  return taps;
}

int reflected(int i, int size) { return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i; }

REN_CLONES void add_scaled(const float* from, float weight, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

REN_CLONES void round_row(const float* from, size_t count, uint8_t* to) {
  // Adding 1.5 * 2^23 leaves the whole number, halves to even, in the low bits.
  for (size_t i = 0; i < count; ++i) {
    const float rounded = (from[i] + 12582912.0f) - 12582912.0f;
    to[i] = uint8_t(std::min(int(rounded), 255));
  }
}

// A row with its reflected ends, as FP32.
void widen_row(const uint8_t* row, int width, int channels, int reach, float* out) {
  for (int x = -reach; x < width + reach; ++x) {
    const uint8_t* const pixel = row + size_t(reflected(x, width)) * size_t(channels);
    for (int c = 0; c < channels; ++c) *out++ = float(pixel[c]);
  }
}

}  // namespace

void adjust_sharpness(const Pixels& picture, double factor, Scratch& scratch) {
  if (picture.width < 3 || picture.height < 3) return;
  const int step = picture.channels, bytes = int(picture.stride());
  scratch.bytes.assign(picture.data, picture.data + picture.bytes());  // the border stays
  for (int y = 1; y < picture.height - 1; ++y)
    smooth_row(picture.row(y - 1), picture.row(y), picture.row(y + 1), step, bytes - step, step,
               scratch.bytes.data() + size_t(y) * picture.stride());
  blend(scratch.bytes.data(), picture.data, picture.bytes(), float(factor));
}

void gaussian_blur(const Pixels& picture, int size, double sigma, Scratch& scratch) {
  const std::vector<float> taps = gaussian_taps(size, sigma);
  const int reach = size / 2;
  const size_t stride = picture.stride(), channels = size_t(picture.channels);
  scratch.floats.assign(picture.bytes(), 0.0f);
  scratch.row.resize(stride + 2 * size_t(reach) * channels);
  for (int y = 0; y < picture.height; ++y) {
    widen_row(picture.row(y), picture.width, picture.channels, reach, scratch.row.data());
    for (int k = 0; k < size; ++k)
      add_scaled(scratch.row.data() + size_t(k) * channels, taps[size_t(k)], stride,
                 scratch.floats.data() + size_t(y) * stride);
  }
  for (int y = 0; y < picture.height; ++y) {
    std::fill_n(scratch.row.data(), stride, 0.0f);
    for (int k = 0; k < size; ++k)
      add_scaled(scratch.floats.data() + size_t(reflected(y + k - reach, picture.height)) * stride,
                 taps[size_t(k)], stride, scratch.row.data());
    round_row(scratch.row.data(), stride, picture.row(y));
  }
}

}  // namespace ren::data
