// SPDX-License-Identifier: Apache-2.0
// E = decay * E + (1 - decay) * W over a whole region, slot gaps included: 4 elements a thread and turn.
extern "C" __global__ void __launch_bounds__(256) range_ema(f32* averages, const f32* weights, const float* decay,
                                                           const float* overflow, uint64 vectors) {
  if (overflow && overflow[0] != 0.0f) return;
  const float kept = decay[0], taken = 1.0f - kept;
  const uint64 stride = uint64(gridDim.x) * 256;
#pragma unroll 2
  for (uint64 vector = uint64(blockIdx.x) * 256 + threadIdx.x; vector < vectors; vector += stride) {
    const Vec<f32, 4> w = Vec<f32, 4>::load(weights + vector * 4);
    Vec<f32, 4> e = Vec<f32, 4>::load(averages + vector * 4);
#pragma unroll
    for (int v = 0; v < 4; ++v) e.set(v, kept * e.get(v) + taken * w.get(v));
    e.store(averages + vector * 4);
  }
}
