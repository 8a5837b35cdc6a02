// SPDX-License-Identifier: Apache-2.0
#include "engine/base/half.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ren {
namespace {

uint16_t f16_from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return uint16_t(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return uint16_t(sign | 0x7C00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                                  // subnormal in FP16
    // Adding 0.5 places the subnormal's last bit at the FP32 mantissa's last bit; the FPU rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | (rounded >> 13));
}

float float_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu, mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = float(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

#if defined(__x86_64__)
bool has_f16c() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return found;
}

__attribute__((target("avx2,f16c"))) size_t widen_f16(const uint16_t* s, float* t, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(t + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i))));
  return i;
}

__attribute__((target("avx2,f16c"))) size_t narrow_f16(const float* s, uint16_t* t, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(t + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

// bf16 is the upper half of an FP32 number, so that integer instructions do.
__attribute__((target("avx2,f16c"))) size_t widen_bf16(const uint16_t* s, float* t, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i)));
    _mm256_storeu_ps(t + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  return i;
}

// As to_bf16: to nearest even, a NaN quiet.
__attribute__((target("avx2,f16c"))) inline __m256i round_to_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

__attribute__((target("avx2,f16c"))) size_t narrow_bf16(const float* s, uint16_t* t, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i packed =
        _mm256_packus_epi32(round_to_bf16(_mm256_loadu_ps(s + i)), round_to_bf16(_mm256_loadu_ps(s + i + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(t + i), _mm256_permute4x64_epi64(packed, 0xD8));
  }
  return i;
}
#else
bool has_f16c() { return false; }
size_t widen_bf16(const uint16_t*, float*, size_t) { return 0; }
size_t narrow_bf16(const float*, uint16_t*, size_t) { return 0; }
size_t widen_f16(const uint16_t*, float*, size_t) { return 0; }
size_t narrow_f16(const float*, uint16_t*, size_t) { return 0; }
#endif

}  // namespace

uint16_t to_f16(float value) { return f16_from_float(value); }
float from_f16(uint16_t bits) { return float_from_f16(bits); }

void convert_to_f32(const void* source, DType type, float* target, size_t count) {
  if (type == DType::f32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  const auto* s = static_cast<const uint16_t*>(source);
  size_t i = 0;
  if (type == DType::f16) {
    if (has_f16c()) i = widen_f16(s, target, count);
    for (; i < count; ++i) target[i] = float_from_f16(s[i]);
  } else {
    if (has_f16c()) i = widen_bf16(s, target, count);
    for (; i < count; ++i) target[i] = from_bf16(s[i]);
  }
}

void convert_from_f32(const float* source, DType type, void* target, size_t count) {
  if (type == DType::f32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  auto* t = static_cast<uint16_t*>(target);
  size_t i = 0;
  if (type == DType::f16) {
    if (has_f16c()) i = narrow_f16(source, t, count);
    for (; i < count; ++i) t[i] = f16_from_float(source[i]);
  } else {
    if (has_f16c()) i = narrow_bf16(source, t, count);
    for (; i < count; ++i) t[i] = to_bf16(source[i]);
  }
}

}  // namespace ren
