// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "engine/ops/support/kernel.h"
#include "engine/range/range.h"

namespace ren {
namespace {

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const RegionSpan target = context.regions[size_t(context.node.as<RangeAttributes>().target)];
  return make_kernel([=] {
    parallel_for(int64_t(target.bytes), 1 << 16, [&](int, int64_t begin, int64_t end) {
      std::memset(target.base + begin, 0, size_t(end - begin));
    });
  });
}

}  // namespace

const OpBackend& range_clear_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
