// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "engine/ops/pool/pool.h"

namespace ren {

// One axis of a pooling: which positions of the input a window covers. Shared by the
// references and the kernels, so that there is one statement of PyTorch's rules.
struct PoolAxis {
  int64_t size, pooled, kernel, stride, dilation, before, after;

  int64_t start(int64_t window) const { return window * stride - before; }
  // Kernel positions [first, last) of a window that fall on the input.
  int64_t first(int64_t window) const {
    const int64_t s = start(window);
    return s >= 0 ? 0 : std::min(kernel, (-s + dilation - 1) / dilation);
  }
  int64_t last(int64_t window) const {
    const int64_t room = size - start(window);
    return room <= 0 ? 0 : std::min(kernel, (room + dilation - 1) / dilation);
  }
  // Positions that a divisor counts: with padding, those on explicit padding too, but never
  // those beyond it, where ceil mode lets the last window hang over.
  int64_t counted(int64_t window, bool include_padding) const {
    if (!include_padding) return std::max<int64_t>(0, last(window) - first(window));
    const int64_t room = size + after - start(window);
    return room <= 0 ? 0 : std::min(kernel, (room + dilation - 1) / dilation);
  }
  // Windows [first_window, last_window) that may cover an input position; with dilation some
  // of them step over it (position_in says which).
  int64_t first_window(int64_t position) const {
    const int64_t reach = (kernel - 1) * dilation, s = position + before - reach;
    return s <= 0 ? 0 : (s + stride - 1) / stride;
  }
  int64_t last_window(int64_t position) const { return std::min(pooled, (position + before) / stride + 1); }
  // The kernel position at which a window covers an input position, or -1.
  int64_t position_in(int64_t window, int64_t position) const {
    const int64_t distance = position - start(window);
    if (distance < 0 || distance % dilation != 0 || distance / dilation >= kernel) return -1;
    return distance / dilation;
  }
};

inline PoolAxis pool_height(const PoolAttributes& a, const Shape& x, const Shape& y) {
  return {x.h, y.h, a.kernel_h, a.stride_h, a.dilation_h, a.pad_top, a.pad_bottom};
}
inline PoolAxis pool_width(const PoolAttributes& a, const Shape& x, const Shape& y) {
  return {x.w, y.w, a.kernel_w, a.stride_w, a.dilation_w, a.pad_left, a.pad_right};
}

// The type of max_pool's second output.
inline DType pool_index_type(const PoolAttributes& a) {
  return a.kernel_h * a.kernel_w <= 255 ? DType::u8 : DType::i32;
}

}  // namespace ren
