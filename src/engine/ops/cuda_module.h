// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/status.h"
#include "engine/ops/op.h"

namespace ren {

// What librenaissance_cuda.so and its opener must agree on: both are compiled from the same
// headers. The number changes with them, so a module of another build is refused by name
// instead of misread. Raise kModuleRevision when meaning changes and layout doesn't.
constexpr int kModuleRevision = 2;
constexpr int module_abi() {
  uint64_t hash = kModuleRevision;
  for (const uint64_t fact :
       {sizeof(Tensor), sizeof(Node), sizeof(Graph), sizeof(Parameter), sizeof(NodeChoice),
        sizeof(BindContext), sizeof(PrepareContext), sizeof(Segment), sizeof(Backend), sizeof(Error),
        size_t(kOps), size_t(kRegions), size_t(kScalarCount), size_t(__GNUC__)})
    hash = hash * 1099511628211u + fact;
  return int(hash & 0x7fffffff);
}

// The module's one exported function. nullptr: `abi` isn't module_abi() of the module's build.
constexpr const char* kCudaModuleFile = "librenaissance_cuda.so";
constexpr const char* kCudaModuleEntry = "ren_cuda_backend";
using CudaModuleEntry = const Backend* (*)(int abi);

}  // namespace ren
