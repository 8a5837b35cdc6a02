// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

using namespace cuda;

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(KernelSource("ema.cu"));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const RegionSpan &weights = context.regions[size_t(Region::W)],
                   &averages = context.regions[size_t(Region::E)];
  const uint64_t vectors = std::min(weights.bytes, averages.bytes) / 16;  // slots are multiples of 512 bytes
  std::byte* overflow = context.inputs.size() > 1 ? context.inputs[1] : nullptr;
  auto list = std::make_unique<LaunchList>(device);
  if (vectors > 0)
    list->kernel(device.kernels().request(KernelSource("ema.cu")), "range_ema",
                 grid_for(device, int64_t(vectors), 256), {256}, averages.base, weights.base,
                 context.inputs[0], overflow, vectors);
  return list;
}

}  // namespace

const OpBackend& range_ema_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
