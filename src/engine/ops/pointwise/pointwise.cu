// SPDX-License-Identifier: Apache-2.0
// One expression over an index space of VECTORS * V elements in NHWC order. The marked lines
// are generated from the expression and from how its operands broadcast.
extern "C" __global__ void __launch_bounds__(THREADS) pointwise(
    //@PARAMETERS
) {
  const index_t stride = index_t(gridDim.x) * THREADS;
  for (index_t vector = index_t(blockIdx.x) * THREADS + threadIdx.x; vector < VECTORS; vector += stride) {
    const index_t e = vector * V;
    //@LOADS
#pragma unroll
    for (int v = 0; v < V; ++v) {
      //@EVALUATE
      //@SET
    }
    //@STORES
  }
}
