// SPDX-License-Identifier: Apache-2.0
#include "capi/layout.h"

namespace ren::capi {
namespace {

// [n, rows, columns] -> [n, columns, rows]
template <typename T>
void transpose(const T* source, T* target, int64_t n, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < n; ++i, source += rows * columns, target += rows * columns)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) target[c * rows + r] = source[r * columns + c];
}

}  // namespace

void nchw_to_nhwc(const void* source, void* target, int64_t n, int64_t c, int64_t pixels,
                  size_t element_bytes) {
  if (element_bytes == 1) {
    transpose(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target), n, c, pixels);
  } else {
    transpose(static_cast<const float*>(source), static_cast<float*>(target), n, c, pixels);
  }
}

void nhwc_to_nchw(const float* source, float* target, int64_t n, int64_t pixels, int64_t c) {
  transpose(source, target, n, pixels, c);
}

}  // namespace ren::capi
