// SPDX-License-Identifier: Apache-2.0
// One block a chunk; a chunk lies in one segment, so it has one rate and one decay.
struct alignas(32) Chunk {
  uint64 begin;              // elements from the region's base, a multiple of 8
  unsigned count;
  float learning_rate, weight_decay;
  unsigned frozen;
};

__device__ void update(float g, float& w, float& m, float rate, float momentum, float decay) {
  g += decay * w;
  float d = g;
  if (USE_MOMENTUM) {
    m = momentum * m + g;
    d = NESTEROV ? g + momentum * m : m;
  }
  w -= rate * d;
}

// 4 elements a thread and turn; slots reach 16 elements past their last, so the tail is in bounds,
// but only a slot's own elements change.
extern "C" __global__ void __launch_bounds__(256)
    range_sgd(const Chunk* chunks, f32* weights, const f32* gradients, f32* moments, A* copies,
              const float* learning_rate, const float* momentum, const float* weight_decay, const float* overflow) {
  const Chunk chunk = chunks[blockIdx.x];
  if (chunk.frozen || (overflow && overflow[0] != 0.0f)) return;
  const float rate = learning_rate[0] * chunk.learning_rate, decay = weight_decay[0] * chunk.weight_decay;
  const float mu = USE_MOMENTUM ? momentum[0] : 0.0f;
  for (unsigned i = threadIdx.x * 4; i < chunk.count; i += 1024) {
    const uint64 at = chunk.begin + i;
    Vec<f32, 4> w = Vec<f32, 4>::load(weights + at), m;
    const Vec<f32, 4> g = Vec<f32, 4>::load(gradients + at);
    if (USE_MOMENTUM) m = Vec<f32, 4>::load(moments + at);
    Vec<A, 4> a;
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      float wv = w.get(v), mv = USE_MOMENTUM ? m.get(v) : 0.0f;
      if (i + v < chunk.count) update(g.get(v), wv, mv, rate, mu, decay);
      w.set(v, wv);
      if (USE_MOMENTUM) m.set(v, mv);
      a.set(v, wv);
    }
    w.store(weights + at);
    if (USE_MOMENTUM) m.store(moments + at);
    if (HAS_COPY) a.store(copies + at);
  }
}
