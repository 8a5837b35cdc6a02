// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/kernel.h"
#include "engine/range/range.h"

namespace ren {
namespace {

REN_CLONES void average(float* e, const float* w, float decay, int64_t count) {
  for (int64_t i = 0; i < count; ++i) e[i] = decay * e[i] + (1.0f - decay) * w[i];
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const RegionSpan weights = context.regions[size_t(Region::W)],
                   averages = context.regions[size_t(Region::E)];
  const auto count = int64_t(std::min(weights.bytes, averages.bytes) / sizeof(float));
  auto* e = reinterpret_cast<float*>(averages.base);
  const auto* w = reinterpret_cast<const float*>(weights.base);
  const float *decay = input_as<float>(context, 0), *overflow = input_as<float>(context, 1);
  return make_kernel([=] {
    if (overflow && *overflow != 0) return;
    parallel_for(count, 1 << 14, [&](int, int64_t begin, int64_t end) {
      average(e + begin, w + begin, *decay, end - begin);
    });
  });
}

}  // namespace

const OpBackend& range_ema_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
