// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

NodeChoice prepare(const PrepareContext&) { return {"cuda:copy", 0, {}}; }

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const auto& a = context.node.as<RangeAttributes>();
  const RegionSpan &source = context.regions[size_t(a.source)], &target = context.regions[size_t(a.target)];
  require(source.bytes == target.bytes, "range_copy: {} and {} differ in size", name_of(a.source),
          name_of(a.target));
  auto list = std::make_unique<cuda::LaunchList>(context.device);
  if (target.bytes > 0) list->copy(target.base, source.base, target.bytes);
  return list;
}

}  // namespace

const OpBackend& range_copy_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
