// SPDX-License-Identifier: Apache-2.0
#include "data/augment/resize_kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#include <algorithm>
#include <cstring>

// A 22-bit weight times a byte needs 32-bit products, which are slow. Each weight is cut
// into two 16-bit parts, w = high * 2^11 + low with 0 <= low < 2^11, so that pmaddwd can
// multiply and add pairs; the sums are joined at the end. All of it is exact.
//
// The horizontal pass takes three channels, and two target positions at once, one in each half of a register:
// then no sums have to be taken across the halves. Gray pictures take the portable one.

#define REN_AVX2 __attribute__((target("avx2")))

namespace ren::data {
namespace {

constexpr int kLowBits = 11;
constexpr int32_t kLowMask = (1 << kLowBits) - 1;
constexpr int kTapsAtOnce = 4;
constexpr int kPackedPerGroup = 64;  // int16 values for four taps of two positions

REN_AVX2 inline __m256i join(__m256i high, __m256i low) {
  const __m256i half = _mm256_set1_epi32(1 << (kResizeBits - 1));
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low), half),
                           kResizeBits);
}

// Of two weights, side by side.
inline int32_t low_parts(int32_t w0, int32_t w1) { return (w0 & kLowMask) | ((w1 & kLowMask) << 16); }
inline int32_t high_parts(int32_t w0, int32_t w1) {
  return ((w0 >> kLowBits) & 0xFFFF) | int32_t(uint32_t(w1 >> kLowBits) << 16);
}

int groups_of(int count) { return (count + kTapsAtOnce - 1) / kTapsAtOnce; }

// For each two target positions and group of four taps, 16 values each: the low parts of taps 0 and 1, in
// turns, of the first position and of the second; those of taps 2 and 3; then the high parts of both.
REN_AVX2 void pack_weights(const AxisWeights& weights, int groups, std::vector<int16_t>& packed) {
  const int positions = int(weights.first.size());
  packed.resize(size_t((positions + 1) / 2) * size_t(groups) * kPackedPerGroup);
  auto* out = reinterpret_cast<__m128i*>(packed.data());
  for (int x = 0; x < positions; x += 2) {
    const int32_t* const two[2] = {weights.at(x), weights.at(std::min(x + 1, positions - 1))};
    for (int g = 0; g < groups; ++g, out += 8) {
      for (int i = 0; i < 4; ++i) {
        const int tap = g * kTapsAtOnce + (i / 2) * 2;
        const int32_t w0 = tap < weights.taps ? two[i % 2][tap] : 0;
        const int32_t w1 = tap + 1 < weights.taps ? two[i % 2][tap + 1] : 0;
        _mm_storeu_si128(out + i, _mm_set1_epi32(low_parts(w0, w1)));
        _mm_storeu_si128(out + 4 + i, _mm_set1_epi32(high_parts(w0, w1)));
      }
    }
  }
}

// Bytes r0 g0 b0 r1 g1 b1 .. of four pixels, in each half, to 16-bit pairs (r0,r1)(g0,g1)(b0,b1)(0,0), and
// the same of the pixels 2 and 3.
REN_AVX2 inline __m256i first_pairs() {
  return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
}
REN_AVX2 inline __m256i second_pairs() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
}

REN_AVX2 inline __m256i load_two(const uint8_t* first, const uint8_t* second) {
  const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first)));
  return _mm256_inserti128_si256(low, _mm_loadu_si128(reinterpret_cast<const __m128i*>(second)), 1);
}

// Where the sources of two target positions begin, and their packed weights.
struct TwoPositions {
  size_t first, second;  // bytes into a row
  int first_groups, second_groups;
  const __m256i* weights;
};

// The two pixels, a 32-bit sum a channel, from each of two rows: more would not fit into the registers.
REN_AVX2 inline void sum_two_rows(const TwoPositions& p, const uint8_t* row, const uint8_t* other,
                                  __m256i& sum, __m256i& other_sum) {
  const __m256i first_shuffle = first_pairs(), second_shuffle = second_pairs();
  __m256i low = _mm256_setzero_si256(), high = low, other_low = low, other_high = low;
  const __m256i* w = p.weights;
  for (int g = 0; g < std::max(p.first_groups, p.second_groups); ++g, w += 4) {
    // A position with fewer groups has zero weights here; its last pixels again stay within the picture.
    const size_t a = p.first + size_t(std::min(g, p.first_groups - 1)) * kTapsAtOnce * 3;
    const size_t b = p.second + size_t(std::min(g, p.second_groups - 1)) * kTapsAtOnce * 3;
    const __m256i w0 = _mm256_loadu_si256(w), w1 = _mm256_loadu_si256(w + 1);
    const __m256i w2 = _mm256_loadu_si256(w + 2), w3 = _mm256_loadu_si256(w + 3);
    const auto add = [&](const uint8_t* from, __m256i& l, __m256i& h) REN_AVX2 {
      const __m256i pixels = load_two(from + a, from + b);
      const __m256i first = _mm256_shuffle_epi8(pixels, first_shuffle);
      const __m256i second = _mm256_shuffle_epi8(pixels, second_shuffle);
      l = _mm256_add_epi32(l, _mm256_add_epi32(_mm256_madd_epi16(first, w0), _mm256_madd_epi16(second, w1)));
      h = _mm256_add_epi32(h, _mm256_add_epi32(_mm256_madd_epi16(first, w2), _mm256_madd_epi16(second, w3)));
    };
    add(row, low, high);
    add(other, other_low, other_high);
  }
  sum = join(high, low);
  other_sum = join(other_high, other_low);
}

// Two pixels of each of four rows, eight bytes a row: r g b r g b and two of scratch.
struct FourRows {
  __m128i first_two, last_two;
};

REN_AVX2 inline FourRows bytes_of(const __m256i* sums) {
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
  const __m128i first = _mm256_castsi256_si128(bytes), second = _mm256_extracti128_si256(bytes, 1);
  const __m128i close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, 8, 9, 10, 12, 13, 14, -1, -1);
  return {_mm_shuffle_epi8(_mm_unpacklo_epi32(first, second), close),
          _mm_shuffle_epi8(_mm_unpackhi_epi32(first, second), close)};
}

// Four rows side by side; `count` of them differ, the last of these takes the place of more.
REN_AVX2 void horizontal_rows(const ImageView& source, const AxisWeights& weights, const int16_t* packed,
                              int groups, int y, int count, Image& target) {
  const int width = target.width();
  const uint8_t* rows[4];
  uint8_t* out[4];
  for (int r = 0; r < 4; ++r) {
    const int row = y + std::min(r, count - 1);
    rows[r] = source.row(row), out[r] = target.row(row);
  }
  const auto* group = reinterpret_cast<const __m256i*>(packed);
  for (int x = 0; x < width; x += 2, group += 4 * groups) {
    const size_t a = size_t(x), b = size_t(std::min(x + 1, width - 1));
    const TwoPositions two{size_t(weights.first[a]) * 3, size_t(weights.first[b]) * 3,
                           groups_of(weights.count[a]), groups_of(weights.count[b]), group};
    __m256i sums[4];
    sum_two_rows(two, rows[0], rows[1], sums[0], sums[1]);
    sum_two_rows(two, rows[2], rows[3], sums[2], sums[3]);
    const FourRows bytes = bytes_of(sums);
    const auto store = [&](int r, uint64_t pixels, size_t size) {
      std::memcpy(out[r] + a * 3, &pixels, size);
    };
    const auto store_all = [&](size_t size) REN_AVX2 {
      store(0, uint64_t(_mm_cvtsi128_si64(bytes.first_two)), size);
      store(1, uint64_t(_mm_extract_epi64(bytes.first_two, 1)), size);
      store(2, uint64_t(_mm_cvtsi128_si64(bytes.last_two)), size);
      store(3, uint64_t(_mm_extract_epi64(bytes.last_two, 1)), size);
    };
    // Eight bytes are one store; the next two pixels replace what was scratch.
    if (x + 4 <= width)
      store_all(8);
    else
      store_all(size_t(std::min(2, width - x)) * 3);
  }
}

REN_AVX2 void horizontal(const ImageView& source, const AxisWeights& weights, std::vector<int16_t>& packed,
                         Image& target) {
  if (source.channels != 3) return portable_resize_kernels().horizontal(source, weights, packed, target);
  const int groups = groups_of(weights.taps);
  pack_weights(weights, groups, packed);
  for (int y = 0; y < source.height; y += 4)
    horizontal_rows(source, weights, packed.data(), groups, y, std::min(4, source.height - y), target);
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
    const __m256i wl = _mm256_set1_epi32(low_parts(w0, w1));
    const __m256i wh = _mm256_set1_epi32(high_parts(w0, w1));
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
