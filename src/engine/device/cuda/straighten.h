// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "engine/device/cuda/cuda_device.h"

namespace ren::cuda {

KernelSource fill_source();

// Puts kernels in the place of a captured graph's memset nodes, which libraries leave there. A chain of
// kernels alone is launched in constant time (3 us for 500), while each node of another kind costs the
// launching thread microseconds (with CUDA 13, 50 memsets among 500 kernels: 80 us). What is returned has to
// outlive the graph; nothing when there was no memset.
std::shared_ptr<CompiledModule> straighten(cudaGraph_t graph, CudaDevice& device);

}  // namespace ren::cuda
