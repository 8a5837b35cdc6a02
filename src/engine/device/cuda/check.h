// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "engine/base/status.h"

namespace ren::cuda {

// Every status of a CUDA library goes through one of these; the error names the call and the reason.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  fail(status == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::device, "{}: {} ({})",
       call, cudaGetErrorString(status), cudaGetErrorName(status));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(StatusCode::device, "{}: {}", call, cublasLtGetStatusString(status));
}

}  // namespace ren::cuda

#define REN_CUDA_CHECK(call) ::ren::cuda::check((call), #call)
