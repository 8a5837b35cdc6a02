// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "engine/ops/support/kernel.h"
#include "engine/range/range.h"

namespace ren {
namespace {

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const auto& a = context.node.as<RangeAttributes>();
  const RegionSpan source = context.regions[size_t(a.source)], target = context.regions[size_t(a.target)];
  return make_kernel([=] {
    parallel_for(int64_t(std::min(source.bytes, target.bytes)), 1 << 16,
                 [&](int, int64_t begin, int64_t end) {
                   std::memcpy(target.base + begin, source.base + begin, size_t(end - begin));
                 });
  });
}

}  // namespace

const OpBackend& range_copy_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
