// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/augment/resize.h"

namespace ren::data {

// The two passes over bytes.
struct ResizeKernels {
  // Every source row to a target row of the target's width.
  void (*horizontal)(const ImageView& source, const AxisWeights& weights, std::vector<int16_t>& packed,
                     Image& target);
  // One target row from `count` source rows: `bytes` bytes each, `stride` apart.
  void (*vertical)(const uint8_t* source, size_t stride, const int32_t* weights, int count, size_t bytes,
                   uint8_t* target);
};

const ResizeKernels& portable_resize_kernels();
const ResizeKernels* avx2_resize_kernels();  // nullptr where the processor or the compiler can't

inline uint8_t to_byte(int32_t sum) { return uint8_t(std::clamp(sum >> kResizeBits, 0, 255)); }

}  // namespace ren::data
