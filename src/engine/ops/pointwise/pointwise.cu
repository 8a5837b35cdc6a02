// SPDX-License-Identifier: Apache-2.0
// One expression over an index space of VECTORS * V elements in NHWC order. The marked lines
// are generated from the expression and from how its operands broadcast.
extern "C" __global__ void __launch_bounds__(THREADS) pointwise(
    //@PARAMETERS
) {
  const index_t first = index_t(blockIdx.x) * THREADS + threadIdx.x;
  // Operands that are the same in all of this thread's elements; any element will do.
  [[maybe_unused]] const index_t fixed =
      ((index_t(VECTORS) - 1) % (index_t(BLOCKS) * THREADS) + index_t(BLOCKS) * THREADS - first) * V;
  //@FIXED
  // From the end to the beginning: what a reduction or a convolution went through last is in the cache
  // still, and what is written last is the next reader's beginning.
  for (index_t rest = first; rest < VECTORS; rest += index_t(BLOCKS) * THREADS) {
    const index_t e = (index_t(VECTORS) - 1 - rest) * V;
    //@LOADS
#pragma unroll
    for (int v = 0; v < V; ++v) {
      //@EVALUATE
      //@SET
    }
    //@STORES
  }
}
