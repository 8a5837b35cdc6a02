// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

NodeChoice prepare(const PrepareContext&) { return {"cuda:fill", 0, {}}; }

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const RegionSpan& target = context.regions[size_t(context.node.as<RangeAttributes>().target)];
  auto list = std::make_unique<cuda::LaunchList>(context.device);
  if (target.bytes > 0) list->fill_zero(target.base, target.bytes);
  return list;
}

}  // namespace

const OpBackend& range_clear_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
