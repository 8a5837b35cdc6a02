// SPDX-License-Identifier: Apache-2.0
// Softmax (LOG: its logarithm) over ROWS rows of C elements, and its gradient. Short rows stay in the
// registers of LANES threads; long ones are read again by their block.
__device__ float add(float a, float b) { return a + b; }

template <typename Combine>
__device__ float over_lanes(float value, Combine combine) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

template <typename Combine>
__device__ float over_block(float value, Combine combine) {
  __shared__ float warps[8];
  value = warp_reduce(value, combine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[0];
  for (int i = 1; i < 8; ++i) value = combine(value, warps[i]);
  return value;
}

// log: in two steps, since the maximum and the logarithm may differ widely in magnitude.
__device__ float normalised(float x, float peak, float total) {
  return LOG ? x - peak - total : expf(x - peak) * total;
}
__device__ float gradient(float dy, float y, float sum) { return LOG ? dy - expf(y) * sum : y * (dy - sum); }

#if VECTORS > 0
extern "C" __global__ void __launch_bounds__(256) softmax(const X* x, Y* y) {
  const index_t row = (index_t(blockIdx.x) * 256 + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  float values[VECTORS * V], peak = -__int_as_float(0x7f800000), sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int at = (k * LANES + lane) * V;
    Vec<X, V> in;
    const bool there = row < ROWS && at < C;
    if (there) in = Vec<X, V>::load(x + row * C + at);
#pragma unroll
    for (int v = 0; v < V; ++v) values[k * V + v] = there ? in.get(v) : -__int_as_float(0x7f800000);
  }
#pragma unroll
  for (int i = 0; i < VECTORS * V; ++i) peak = maximum(peak, values[i]);
  peak = over_lanes(peak, maximum);
#pragma unroll
  for (int k = 0; k < VECTORS; ++k)
#pragma unroll
    for (int v = 0; v < V; ++v)
      if ((k * LANES + lane) * V < C) {
        const float e = expf(values[k * V + v] - peak);
        sum += e;
        if (!LOG) values[k * V + v] = e;
      }
  sum = over_lanes(sum, add);
  const float total = LOG ? logf(sum) : 1.0f / sum;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int at = (k * LANES + lane) * V;
    if (row >= ROWS || at >= C) continue;
    Vec<Y, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v)
      out.set(v, LOG ? values[k * V + v] - peak - total : values[k * V + v] * total);
    out.store(y + row * C + at);
  }
}

extern "C" __global__ void __launch_bounds__(256) softmax_backward(const X* dy, const Y* y, Y* dx) {
  const index_t row = (index_t(blockIdx.x) * 256 + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  Vec<X, V> gradients[VECTORS];
  Vec<Y, V> values[VECTORS];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int at = (k * LANES + lane) * V;
    if (row >= ROWS || at >= C) continue;
    gradients[k] = Vec<X, V>::load(dy + row * C + at);
    values[k] = Vec<Y, V>::load(y + row * C + at);
  }
#pragma unroll
  for (int k = 0; k < VECTORS; ++k)
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (row < ROWS && (k * LANES + lane) * V < C)
        sum += LOG ? gradients[k].get(v) : gradients[k].get(v) * values[k].get(v);
  sum = over_lanes(sum, add);
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int at = (k * LANES + lane) * V;
    if (row >= ROWS || at >= C) continue;
    Vec<Y, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, gradient(gradients[k].get(v), values[k].get(v), sum));
    out.store(dx + row * C + at);
  }
}
#else
extern "C" __global__ void __launch_bounds__(256) softmax(const X* x, Y* y) {
  const X* source = x + index_t(blockIdx.x) * C;
  float peak = -__int_as_float(0x7f800000);
#pragma unroll 4
  for (index_t c = threadIdx.x * V; c < C; c += 256 * V) {
    const Vec<X, V> in = Vec<X, V>::load(source + c);
#pragma unroll
    for (int v = 0; v < V; ++v) peak = maximum(peak, in.get(v));
  }
  peak = over_block(peak, maximum);
  Sum sums;
  for (index_t c = threadIdx.x * V; c < C; c += 256 * V) {
    const Vec<X, V> in = Vec<X, V>::load(source + c);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(expf(in.get(v) - peak));
  }
  const float sum = over_block(sums.result(), add), total = LOG ? logf(sum) : 1.0f / sum;
  for (index_t c = threadIdx.x * V; c < C; c += 256 * V) {
    const Vec<X, V> in = Vec<X, V>::load(source + c);
    Vec<Y, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, normalised(in.get(v), peak, total));
    out.store(y + index_t(blockIdx.x) * C + c);
  }
}

extern "C" __global__ void __launch_bounds__(256) softmax_backward(const X* dy, const Y* y, Y* dx) {
  const index_t begin = index_t(blockIdx.x) * C;
  Sum sums;
#pragma unroll 2
  for (index_t c = threadIdx.x * V; c < C; c += 256 * V) {
    const Vec<X, V> gradients = Vec<X, V>::load(dy + begin + c);
    const Vec<Y, V> values = Vec<Y, V>::load(y + begin + c);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(LOG ? gradients.get(v) : gradients.get(v) * values.get(v));
  }
  const float sum = over_block(sums.result(), add);
  for (index_t c = threadIdx.x * V; c < C; c += 256 * V) {
    const Vec<X, V> gradients = Vec<X, V>::load(dy + begin + c);
    const Vec<Y, V> values = Vec<Y, V>::load(y + begin + c);
    Vec<Y, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, gradient(gradients.get(v), values.get(v), sum));
    out.store(dx + begin + c);
  }
}
#endif
