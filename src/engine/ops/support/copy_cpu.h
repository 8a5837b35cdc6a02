// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "engine/ops/support/axis_blocks.h"
#include "engine/ops/support/kernel.h"

namespace ren {

// `count` pieces of `bytes` each, at strides.
inline void copy_pieces(std::byte* target, int64_t target_stride, const std::byte* source,
                        int64_t source_stride, int64_t bytes, int64_t count) {
  if (bytes == 4) {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(target + i * target_stride, source + i * source_stride, 4);
  } else if (bytes == 2) {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(target + i * target_stride, source + i * source_stride, 2);
  } else {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(target + i * target_stride, source + i * source_stride, size_t(bytes));
  }
}

// Blocks that one thread should take at least, so that handing them out costs little.
inline int64_t block_grain(int64_t bytes) {
  return std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(bytes, 1));
}

}  // namespace ren
