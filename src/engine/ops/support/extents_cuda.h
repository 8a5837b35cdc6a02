// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "engine/device/cuda/launch.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren::cuda {

// How kernels that copy or that work row by row share out their work.

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The widest access in bytes, at most 16, that fits into all of these byte counts without a rest.
inline int64_t widest_unit(std::initializer_list<int64_t> bytes) {
  int64_t common = 0;
  for (const int64_t b : bytes) common = std::gcd(common, b);
  return power_of_two_in(common, 16);
}

// One thread for `items` accesses in flight, 256 threads a block, everything in one wave of blocks
// after another: no loop.
struct Items {
  int64_t items;
  unsigned blocks;
};
constexpr int64_t kCopyThreads = 256;
inline int64_t items_of(const CudaDevice& device, int64_t accesses) {
  return accesses >= int64_t(device.processors()) * 2048 * 4 ? 4 : 1;
}
inline Items items_for(const CudaDevice& device, int64_t accesses) {
  const int64_t items = items_of(device, accesses);
  return {items, unsigned(divide_up(accesses, items * kCopyThreads))};
}

// A row of neighbouring elements held in the registers of a part of a warp: `lanes` threads with
// `vectors` vectors of `width` elements each.
struct RowLanes {
  int64_t width = 1, lanes = 32, vectors = 0;  // no vectors: the row is too long
  unsigned blocks_of(int64_t rows) const { return unsigned(divide_up(rows * lanes, 256)); }
};

inline RowLanes row_lanes(int64_t length, DType type) {
  RowLanes best;
  best.width = power_of_two_in(length, elements_in_16_bytes(type));
  const int64_t vectors = length / best.width;
  for (int64_t lanes = 1; lanes <= 32; lanes *= 2) {
    const int64_t each = divide_up(vectors, lanes);
    if (each > (lanes == 32 ? 8 : 4)) continue;
    if (best.vectors == 0 || each * lanes <= best.vectors * best.lanes)  // fewest idle ones, then most lanes
      best.lanes = lanes, best.vectors = each;
  }
  return best;
}

}  // namespace ren::cuda
