// SPDX-License-Identifier: Apache-2.0
#include "data/augment/resize_kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#include <cstring>

// A 22-bit weight times a byte needs 32-bit products, which are slow. Each weight is cut
// into two 16-bit parts, w = high * 2^11 + low with 0 <= low < 2^11, so that pmaddwd can
// multiply and add pairs; the sums are joined at the end. All of it is exact.
//
// The horizontal pass takes three channels; gray pictures take the portable one.

#define REN_AVX2 __attribute__((target("avx2")))

namespace ren::data {
namespace {

constexpr int kLowBits = 11;
constexpr int32_t kLowMask = (1 << kLowBits) - 1;
constexpr int kTapsAtOnce = 4;
constexpr int kPackedPerGroup = 32;  // int16 values for four taps: 16 low, 16 high

REN_AVX2 inline __m256i join(__m256i high, __m256i low) {
  const __m256i half = _mm256_set1_epi32(1 << (kResizeBits - 1));
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low), half),
                           kResizeBits);
}

// For each target position and group of four taps: the low parts as pairs (t0,t1) four
// times, (t2,t3) four times; then the high parts.
void pack_weights(const AxisWeights& weights, int groups, std::vector<int16_t>& packed) {
  const size_t positions = weights.first.size();
  packed.resize(positions * size_t(groups) * kPackedPerGroup);
  int16_t* out = packed.data();
  for (size_t x = 0; x < positions; ++x) {
    const int32_t* const w = weights.at(int(x));
    for (int g = 0; g < groups; ++g, out += kPackedPerGroup) {
      for (int i = 0; i < 16; ++i) {
        const int tap = g * kTapsAtOnce + (i / 8) * 2 + (i & 1);
        const int32_t value = tap < weights.count[x] ? w[tap] : 0;
        out[i] = int16_t(value & kLowMask);
        out[16 + i] = int16_t(value >> kLowBits);
      }
    }
  }
}

// Bytes r0 g0 b0 r1 g1 b1 .. of four pixels, in both halves, to 16-bit pairs
// (r0,r1)(g0,g1)(b0,b1)(0,0) and (r2,r3)(g2,g3)(b2,b3)(0,0).
REN_AVX2 inline __m256i pair_shuffle() {
  return _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                          6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
}

REN_AVX2 inline __m256i load_pairs(const uint8_t* pixels, __m256i shuffle) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), shuffle);
}

struct Sums {
  __m256i low, high;
};

// Adds the two halves (taps 0,1 and 2,3) and writes one pixel; the fourth byte is scratch.
REN_AVX2 inline uint32_t finish_pixel(const Sums& s) {
  const __m128i low = _mm_add_epi32(_mm256_castsi256_si128(s.low), _mm256_extracti128_si256(s.low, 1));
  const __m128i high = _mm_add_epi32(_mm256_castsi256_si128(s.high), _mm256_extracti128_si256(s.high, 1));
  const __m128i half = _mm_set1_epi32(1 << (kResizeBits - 1));
  __m128i sum = _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(high, kLowBits), low), half);
  sum = _mm_srai_epi32(sum, kResizeBits);
  sum = _mm_packs_epi32(sum, sum);
  return uint32_t(_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum)));
}

REN_AVX2 inline void store_pixel(uint8_t* out, uint32_t pixel) {
  const uint16_t two = uint16_t(pixel);
  std::memcpy(out, &two, 2);
  out[2] = uint8_t(pixel >> 16);
}

// `kRows` rows side by side: the weights are loaded once for all of them.
template <int kRows>
REN_AVX2 void horizontal_rows(const ImageView& source, const AxisWeights& weights, const int16_t* packed,
                              int groups, int y, Image& target) {
  const __m256i shuffle = pair_shuffle();
  const uint8_t* rows[kRows];
  uint8_t* out[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = source.row(y + r), out[r] = target.row(y + r);
  for (int x = 0; x < target.width(); ++x) {
    Sums sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r].low = sums[r].high = _mm256_setzero_si256();
    const int used = (weights.count[size_t(x)] + kTapsAtOnce - 1) / kTapsAtOnce;
    const size_t begin = size_t(weights.first[size_t(x)]) * 3;
    const int16_t* group = packed + size_t(x) * size_t(groups) * kPackedPerGroup;
    for (int g = 0; g < used; ++g, group += kPackedPerGroup) {
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + 16));
      for (int r = 0; r < kRows; ++r) {
        const __m256i pairs = load_pairs(rows[r] + begin + size_t(g) * kTapsAtOnce * 3, shuffle);
        sums[r].low = _mm256_add_epi32(sums[r].low, _mm256_madd_epi16(pairs, low));
        sums[r].high = _mm256_add_epi32(sums[r].high, _mm256_madd_epi16(pairs, high));
      }
    }
    for (int r = 0; r < kRows; ++r) store_pixel(out[r] + size_t(x) * 3, finish_pixel(sums[r]));
  }
}

REN_AVX2 void horizontal(const ImageView& source, const AxisWeights& weights, std::vector<int16_t>& packed,
                         Image& target) {
  if (source.channels != 3) return portable_resize_kernels().horizontal(source, weights, packed, target);
  const int groups = (weights.taps + kTapsAtOnce - 1) / kTapsAtOnce;
  pack_weights(weights, groups, packed);
  int y = 0;
  for (; y + 4 <= source.height; y += 4)
    horizontal_rows<4>(source, weights, packed.data(), groups, y, target);
  for (; y < source.height; ++y) horizontal_rows<1>(source, weights, packed.data(), groups, y, target);
}

// 32 bytes of a target row.
REN_AVX2 inline __m256i vertical_block(const uint8_t* source, size_t stride, const int32_t* weights,
                                       int count) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i low[4], high[4];
  for (int i = 0; i < 4; ++i) low[i] = high[i] = zero;
  for (int k = 0; k < count; k += 2) {
    const bool pair = k + 1 < count;
    const int32_t w0 = weights[k], w1 = pair ? weights[k + 1] : 0;
    const __m256i wl = _mm256_set1_epi32((w0 & kLowMask) | ((w1 & kLowMask) << 16));
    const __m256i wh =
        _mm256_set1_epi32(((w0 >> kLowBits) & 0xFFFF) | int32_t(uint32_t(w1 >> kLowBits) << 16));
    const uint8_t* const row = source + size_t(k) * stride;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    const __m256i b = pair ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + stride)) : zero;
    const __m256i ab[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
    for (int i = 0; i < 4; ++i) {
      const __m256i words =
          i & 1 ? _mm256_unpackhi_epi8(ab[i / 2], zero) : _mm256_unpacklo_epi8(ab[i / 2], zero);
      low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(words, wl));
      high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(words, wh));
    }
  }
  const __m256i first = _mm256_packs_epi32(join(high[0], low[0]), join(high[1], low[1]));
  const __m256i second = _mm256_packs_epi32(join(high[2], low[2]), join(high[3], low[3]));
  return _mm256_packus_epi16(first, second);
}

REN_AVX2 void vertical(const uint8_t* source, size_t stride, const int32_t* weights, int count, size_t bytes,
                       uint8_t* target) {
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i),
                        vertical_block(source + i, stride, weights, count));
  if (i == bytes) return;
  // The source's padding makes the load safe; only what belongs to the row is written.
  alignas(32) uint8_t rest[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(rest), vertical_block(source + i, stride, weights, count));
  std::memcpy(target + i, rest, bytes - i);
}

}  // namespace

const ResizeKernels* avx2_resize_kernels() {
  static constexpr ResizeKernels kernels{horizontal, vertical};
  static const bool usable = __builtin_cpu_supports("avx2");
  return usable ? &kernels : nullptr;
}

}  // namespace ren::data

#else

namespace ren::data {
const ResizeKernels* avx2_resize_kernels() { return nullptr; }
}  // namespace ren::data

#endif
