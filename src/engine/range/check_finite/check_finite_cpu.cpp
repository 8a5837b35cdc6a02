// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "engine/ops/support/kernel.h"
#include "engine/range/range.h"

namespace ren {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Scales in place; true when all values are finite. An exponent of all ones is infinity or NaN.
REN_CLONES bool unscale(float* g, float factor, int64_t count) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    g[i] *= factor;
    const uint32_t bits = std::bit_cast<uint32_t>(g[i]);
    bad |= (bits & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  }
  return bad == 0;
}

NodeChoice prepare(const PrepareContext&) {
  return own_engine(uint64_t(compute_threads()) * sizeof(int32_t));  // one flag a thread
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const RegionSpan gradients = context.regions[size_t(context.node.as<RangeAttributes>().target)];
  const auto count = int64_t(gradients.bytes / sizeof(float));
  auto* g = reinterpret_cast<float*>(gradients.base);
  const float* scale = input_as<float>(context, 0);
  float* overflow = input_as<float>(context, 1);
  auto* finite = reinterpret_cast<int32_t*>(context.workspace);
  return make_kernel([=] {
    const float factor = 1.0f / *scale;
    parallel_for(count, kGrain, [&](int part, int64_t begin, int64_t end) {
      finite[part] = unscale(g + begin, factor, end - begin);
    });
    bool all = true;
    for (int part = 0; part < parallel_parts(count, kGrain); ++part) all &= finite[part] != 0;
    *overflow = all ? 0.0f : 1.0f;
  });
}

std::unique_ptr<Kernel> bind_update(const BindContext& context) {
  const auto a = context.node.as<LossScaleAttributes>();
  const float* overflow = input_as<float>(context, 0);
  float* scale = input_as<float>(context, 1);
  int32_t *tracker = input_as<int32_t>(context, 2), *skipped = input_as<int32_t>(context, 3);
  int32_t *in_a_row = input_as<int32_t>(context, 4), *step = input_as<int32_t>(context, 5);
  return make_kernel([=] {
    *step += 1;
    if (!a.enabled) return;
    if (*overflow != 0) {
      *scale = std::max(*scale * a.backoff, a.floor);
      *tracker = 0;
      *skipped += 1;
      *in_a_row += 1;
      return;
    }
    *in_a_row = 0;
    if (++*tracker < a.growth_interval) return;
    *scale = std::min(*scale * a.growth, a.ceiling);
    *tracker = 0;
  });
}

}  // namespace

const OpBackend& range_check_finite_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& range_update_loss_scale_cpu() {
  static const OpBackend backend{prepare_own, bind_update};
  return backend;
}

}  // namespace ren
