// SPDX-License-Identifier: Apache-2.0
// One block a chunk; a chunk lies in one segment, so it has one rate, one decay and one trust ratio.
struct alignas(32) Chunk {
  uint64 begin;  // elements from the region's base, a multiple of 8
  unsigned count;
  float learning_rate, weight_decay;
  int ratio;  // whose ratio it takes; -1: none
};

__device__ void update(float g, float& w, float& m, float rate, float momentum, float decay, float ratio) {
  g += decay * w;
  if (LARS) g *= ratio;
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
    step(const Chunk* chunks, f32* weights, const f32* gradients, f32* moments, A* copies, const float* ratios,
         const float* learning_rate, const float* momentum, const float* weight_decay, const float* overflow) {
  const Chunk chunk = chunks[blockIdx.x];
  if (overflow && overflow[0] != 0.0f) return;
  const float rate = learning_rate[0] * chunk.learning_rate, decay = weight_decay[0] * chunk.weight_decay;
  const float mu = USE_MOMENTUM ? momentum[0] : 0.0f;
  const float ratio = LARS && chunk.ratio >= 0 ? ratios[chunk.ratio] : 1.0f;
  for (unsigned i = threadIdx.x * 4; i < chunk.count; i += 1024) {
    const uint64 at = chunk.begin + i;
    Vec<f32, 4> w = Vec<f32, 4>::load(weights + at), m;
    const Vec<f32, 4> g = Vec<f32, 4>::load(gradients + at);
    if (USE_MOMENTUM) m = Vec<f32, 4>::load(moments + at);
    Vec<A, 4> a;
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      float wv = w.get(v), mv = USE_MOMENTUM ? m.get(v) : 0.0f;
      if (i + v < chunk.count) update(g.get(v), wv, mv, rate, mu, decay, ratio);
      w.set(v, wv);
      if (USE_MOMENTUM) m.set(v, mv);
      a.set(v, wv);
    }
    w.store(weights + at);
    if (USE_MOMENTUM) m.store(moments + at);
    if (HAS_COPY) a.store(copies + at);
  }
}

#if LARS
struct Norms {
  double w, g;  // squared
};

__device__ Norms over_block(Norms norms) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    norms.w += __shfl_xor_sync(0xffffffffu, norms.w, mask);
    norms.g += __shfl_xor_sync(0xffffffffu, norms.g, mask);
  }
  __shared__ Norms warps[8];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = norms;
  __syncthreads();
  norms = warps[0];
  for (int i = 1; i < 8; ++i) norms.w += warps[i].w, norms.g += warps[i].g;
  return norms;
}

// Of each chunk that has a ratio. In double: squares of small gradients underflow in FP32.
extern "C" __global__ void __launch_bounds__(256)
    norms(const Chunk* chunks, const f32* weights, const f32* gradients, const float* overflow, Norms* partial) {
  const Chunk chunk = chunks[blockIdx.x];
  if (chunk.ratio < 0 || (overflow && overflow[0] != 0.0f)) return;
  Norms sum = {0.0, 0.0};
#pragma unroll 4
  for (unsigned i = threadIdx.x * 4; i < chunk.count; i += 1024) {
    const Vec<f32, 4> w = Vec<f32, 4>::load(weights + chunk.begin + i);
    const Vec<f32, 4> g = Vec<f32, 4>::load(gradients + chunk.begin + i);
#pragma unroll
    for (int v = 0; v < 4; ++v)
      if (i + v < chunk.count) {
        sum.w += double(w.get(v)) * double(w.get(v));
        sum.g += double(g.get(v)) * double(g.get(v));
      }
  }
  sum = over_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block for each ratio: its chunks, in order.
struct Range {
  unsigned first, count;
  float weight_decay;
  unsigned unused;
};
extern "C" __global__ void __launch_bounds__(256)
    trust(const Range* ranges, const Norms* partial, const float* weight_decay, const float* coefficient,
          const float* overflow, float* ratios) {
  const Range range = ranges[blockIdx.x];
  if (overflow && overflow[0] != 0.0f) return;
  Norms sum = {0.0, 0.0};
  for (unsigned i = threadIdx.x; i < range.count; i += 256)
    sum.w += partial[range.first + i].w, sum.g += partial[range.first + i].g;
  sum = over_block(sum);
  if (threadIdx.x != 0) return;
  const double w = sqrt(sum.w), g = sqrt(sum.g), decay = double(weight_decay[0] * range.weight_decay);
  ratios[blockIdx.x] = w == 0.0 || g == 0.0 ? 1.0f : float(double(coefficient[0]) * w / (g + decay * w + 1e-9));
}
#endif
