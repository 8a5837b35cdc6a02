// SPDX-License-Identifier: Apache-2.0
// A whole region in 16 bits, slot gaps included: 8 elements a thread and turn.
extern "C" __global__ void __launch_bounds__(256) range_cast(const f32* source, Y* target, uint64 vectors) {
  const uint64 stride = uint64(gridDim.x) * 256;
  for (uint64 vector = uint64(blockIdx.x) * 256 + threadIdx.x; vector < vectors; vector += stride) {
    const Vec<f32, 8> in = Vec<f32, 8>::load(source + vector * 8);
    Vec<Y, 8> out;
#pragma unroll
    for (int v = 0; v < 8; ++v) out.set(v, in.get(v));
    out.store(target + vector * 8);
  }
}
