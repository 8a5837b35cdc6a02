// SPDX-License-Identifier: Apache-2.0
// `overflow` is cleared before. Threads that find one all write the same 1.
extern "C" __global__ void __launch_bounds__(256)
    check_finite(f32* gradients, const float* loss_scale, float* overflow, uint64 vectors) {
  const float factor = 1.0f / loss_scale[0];
  const uint64 stride = uint64(gridDim.x) * 256;
  bool bad = false;
  for (uint64 vector = uint64(blockIdx.x) * 256 + threadIdx.x; vector < vectors; vector += stride) {
    Vec<f32, 8> values = Vec<f32, 8>::load(gradients + vector * 8);
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const float g = values.get(v);
      bad |= !(fabsf(g) <= 3.402823466e38f);
      values.set(v, g * factor);
    }
    values.store(gradients + vector * 8);
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) overflow[0] = 1.0f;
}

extern "C" __global__ void update_loss_scale(const float* overflow, float* loss_scale, int* growth_tracker,
                                             int* skipped_steps, int* skipped_in_a_row, int* step) {
  step[0] += 1;
  if (!ENABLED) return;
  if (overflow[0] != 0.0f) {
    loss_scale[0] = fmaxf(loss_scale[0] * BACKOFF, FLOOR);
    growth_tracker[0] = 0;
    skipped_steps[0] += 1;
    skipped_in_a_row[0] += 1;
    return;
  }
  skipped_in_a_row[0] = 0;
  if (++growth_tracker[0] < GROWTH_INTERVAL) return;
  loss_scale[0] = fminf(loss_scale[0] * GROWTH, CEILING);
  growth_tracker[0] = 0;
}
