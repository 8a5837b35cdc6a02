// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/device/cuda/launch.h"
#include "engine/ops/op.h"

namespace ren::cuda {

// Mean and inverse standard deviation, 1 / sqrt(variance + epsilon), of `rows` rows of `length`
// neighbouring elements of input 0, each written `expand` times to outputs 0 and 1.
struct RowMoments {
  DType type;
  int64_t rows, length, expand;
  float epsilon;
};

NodeChoice prepare_row_moments(CudaDevice& device, const RowMoments& what);
std::unique_ptr<Kernel> bind_row_moments(const BindContext& context, const RowMoments& what);

}  // namespace ren::cuda
