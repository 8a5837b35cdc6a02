// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

using namespace cuda;

// The check reads none of the constants: for it any do.
KernelSource specialise(const LossScaleAttributes* a) {
  KernelSource source("check_finite.cu");
  source.define("ENABLED", int64_t{a && a->enabled})
      .define("GROWTH", a ? a->growth : 1.0f)
      .define("BACKOFF", a ? a->backoff : 1.0f)
      .define("FLOOR", a ? a->floor : 1.0f)
      .define("CEILING", a ? a->ceiling : 1.0f)
      .define("GROWTH_INTERVAL", int64_t{a ? a->growth_interval : 1});
  return source;
}

NodeChoice prepare_check(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(nullptr));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind_check(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const RegionSpan& span = context.regions[size_t(context.node.as<RangeAttributes>().target)];
  const uint64_t vectors = span.bytes / 32;
  std::byte *scale = context.inputs[0], *overflow = context.inputs[1];
  auto list = std::make_unique<LaunchList>(device);
  list->fill_zero(overflow, sizeof(float));
  if (vectors > 0)
    list->kernel(device.kernels().request(specialise(nullptr)), "check_finite",
                 grid_for(device, int64_t(vectors), 256), {256}, span.base, scale, overflow, vectors);
  return list;
}

NodeChoice prepare_update(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(&context.node.as<LossScaleAttributes>()));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind_update(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const std::vector<std::byte*> scalars(context.inputs.begin(), context.inputs.begin() + 6);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel_of_pointers(device.kernels().request(specialise(&context.node.as<LossScaleAttributes>())),
                           "update_loss_scale", {1}, {1}, scalars);
  return list;
}

}  // namespace

const OpBackend& range_check_finite_cuda() {
  static const OpBackend backend{prepare_check, bind_check};
  return backend;
}
const OpBackend& range_update_loss_scale_cuda() {
  static const OpBackend backend{prepare_update, bind_update};
  return backend;
}

}  // namespace ren
