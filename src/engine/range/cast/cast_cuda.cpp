// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

using namespace cuda;

KernelSource specialise(const Node& node) {
  KernelSource source("cast.cu");
  source.define("Y", node.as<RangeAttributes>().target_type);
  return source;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.node));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const auto& a = context.node.as<RangeAttributes>();
  const RegionSpan &source = context.regions[size_t(a.source)], &target = context.regions[size_t(a.target)];
  const uint64_t vectors = source.bytes / 32;  // 8 elements each; slots are multiples of 512 bytes
  require(vectors * 8 * size_of(a.target_type) <= target.bytes, "range_cast: {} does not fit {}",
          name_of(a.source), name_of(a.target));
  auto list = std::make_unique<LaunchList>(device);
  if (vectors > 0)
    list->kernel(device.kernels().request(specialise(context.node)), "range_cast",
                 grid_for(device, int64_t(vectors), 256), {256}, source.base, target.base, vectors);
  return list;
}

}  // namespace

const OpBackend& range_cast_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
