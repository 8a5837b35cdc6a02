// SPDX-License-Identifier: Apache-2.0
#include "engine/base/half.h"
#include "engine/ops/support/kernel.h"
#include "engine/range/range.h"

namespace ren {
namespace {

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const auto& a = context.node.as<RangeAttributes>();
  const RegionSpan source = context.regions[size_t(a.source)], target = context.regions[size_t(a.target)];
  const DType type = a.target_type;
  const auto count = int64_t(std::min(source.bytes / sizeof(float), target.bytes / size_of(type)));
  return make_kernel([=] {
    parallel_for(count, 1 << 14, [&](int, int64_t begin, int64_t end) {
      convert_from_f32(reinterpret_cast<const float*>(source.base) + begin, type,
                       target.base + begin * int64_t(size_of(type)), size_t(end - begin));
    });
  });
}

}  // namespace

const OpBackend& range_cast_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
