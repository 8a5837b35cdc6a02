// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ren::capi {

// Between [n, c, pixels] and [n, pixels, c], for elements of 1 or 4 bytes.
void nchw_to_nhwc(const void* source, void* target, int64_t n, int64_t c, int64_t pixels,
                  size_t element_bytes);
void nhwc_to_nchw(const float* source, float* target, int64_t n, int64_t pixels, int64_t c);

}  // namespace ren::capi
