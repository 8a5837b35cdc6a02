// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"

namespace ren {

// 16-bit storage formats, rounded to nearest even; NaN stays NaN, overflow becomes infinity.
uint16_t to_f16(float value);
float from_f16(uint16_t bits);

inline uint16_t to_bf16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return uint16_t((u >> 16) | 0x40u);
  return uint16_t((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Whole arrays, vectorised where the processor can (F16C, AVX-512).
// `type` is f32, f16 or bf16; f32 copies.
void convert_to_f32(const void* source, DType type, float* target, size_t count);
void convert_from_f32(const float* source, DType type, void* target, size_t count);

}  // namespace ren
