// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch.h"
#include "engine/ir/graph.h"

namespace ren::cuda {

// The kernel that reads x [N,H,W,C] once for the moments of each channel; what it makes of them is
// the source's FINISH.
struct ColumnMoments {
  ColumnMoments(const Tensor& x, const CudaDevice& device);
  KernelSource source{"batch_norm.cu"};
  Grid grid, block;
  int64_t splits = 1, channels = 1;
  uint64_t workspace() const;
};

// FINISH of batch_norm.cu.
enum ColumnMomentsFinish : int64_t { kStatistics, kChannelSums };

}  // namespace ren::cuda
