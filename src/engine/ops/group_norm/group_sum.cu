// SPDX-License-Identifier: Apache-2.0
// Each of GROUPS groups of PER_GROUP neighbouring elements becomes their sum; LANES threads a group.
extern "C" __global__ void __launch_bounds__(256) group_sum(const X* x, float* y) {
  const index_t group = (index_t(blockIdx.x) * 256 + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  Sum sum;
  if (group < GROUPS)
    for (int i = lane; i < PER_GROUP; i += LANES) sum.add(load_one(x + group * PER_GROUP + i));
  float value = sum.result();
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  if (group < GROUPS)
    for (int i = lane; i < PER_GROUP; i += LANES) y[group * PER_GROUP + i] = value;
}
