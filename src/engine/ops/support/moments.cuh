// SPDX-License-Identifier: Apache-2.0
// Count, mean and squared deviations of some values, joined pairwise in a fixed order.

struct Moments {
  float count, mean, m2;
};

__device__ Moments join(const Moments& a, const Moments& b) {
  if (b.count == 0.0f) return a;
  if (a.count == 0.0f) return b;
  const float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

// Over neighbouring groups of kGroup lanes; all of the warp must take part. The lanes' results may
// differ in their last bits: the group's first has the one that counts.
template <int kGroup>
__device__ Moments join_lanes(Moments m) {
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2)
    m = join(m, {__shfl_down_sync(0xffffffffu, m.count, step), __shfl_down_sync(0xffffffffu, m.mean, step),
                 __shfl_down_sync(0xffffffffu, m.m2, step)});
  return m;
}

// Sums and squares of the differences from `shift`, one of the values, so that a large mean costs
// no digits.
struct ShiftedSums {
  float shift = 0.0f, sum = 0.0f, squares = 0.0f;
  __device__ void add(float value) {
    const float d = value - shift;
    sum += d;
    squares += d * d;
  }
  __device__ Moments moments(float count) const {
    if (count == 0.0f) return {0.0f, 0.0f, 0.0f};
    const float mean = sum / count;
    return {count, shift + mean, maximum(squares - sum * mean, 0.0f)};
  }
};
