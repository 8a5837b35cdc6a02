// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/half.h"
#include "engine/ops/support/kernel.h"

namespace ren {

// What kernels over rows of C share.

// Rows that one thread should take at least.
inline int64_t row_grain(int64_t channels) { return std::max<int64_t>(1, (1 << 12) / channels); }

// Row `i` of a matrix as floats: in place, or converted into `buffer`.
inline const float* load_row(const std::byte* base, DType type, int64_t i, int64_t channels, float* buffer) {
  if (type == DType::f32) return reinterpret_cast<const float*>(base) + i * channels;
  convert_to_f32(base + i * channels * 2, type, buffer, size_t(channels));
  return buffer;
}

// Where row `i` of a result may be written: in place, or into `buffer` for finish_row.
inline float* begin_row(std::byte* base, DType type, int64_t i, int64_t channels, float* buffer) {
  return type == DType::f32 ? reinterpret_cast<float*>(base) + i * channels : buffer;
}
inline void finish_row(const float* row, std::byte* base, DType type, int64_t i, int64_t channels) {
  if (type != DType::f32) convert_from_f32(row, type, base + i * channels * 2, size_t(channels));
}

float largest_of(const float* x, int64_t count);  // NaN is passed over
// y = exp(x - shift); returns the sum, in double. y may be x.
double exponentials(const float* x, float shift, int64_t count, float* y);

}  // namespace ren
