// SPDX-License-Identifier: Apache-2.0
// Mean and variance of each of C columns over R rows. Every thread sums the differences from
// its first element, so that a large mean costs no digits; counts, means and squared deviations
// are then joined pairwise (Chan, Golub, LeVeque 1979) in a fixed order.

struct Moments {
  float count, mean, m2;
};

__device__ Moments join(const Moments& a, const Moments& b) {
  if (b.count == 0.0f) return a;
  if (a.count == 0.0f) return b;
  const float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

__device__ void finish_channel(const Moments& m, int c, float* running_mean, float* running_variance, float* mean,
                               float* inverse_std) {
  const float variance = m.m2 / float(R);
  if (mean) mean[c] = m.mean;
  if (inverse_std) inverse_std[c] = 1.0f / sqrtf(variance + EPSILON);
  if (!isfinite(m.mean) || !isfinite(m.m2)) return;
  if (running_mean) running_mean[c] = KEEP * running_mean[c] + (1.0f - KEEP) * m.mean;
  if (running_variance)
    running_variance[c] = KEEP * running_variance[c] + (1.0f - KEEP) * (m.m2 / float(R - 1));
}

// Threads (TX, TY): TX * V columns, TY rows at a time; blockIdx.y is the piece of R.
extern "C" __global__ void __launch_bounds__(TX * TY)
    statistics(const X* x, float* running_mean, float* running_variance, float* mean, float* inverse_std,
               Moments* partial) {
  const int column = (blockIdx.x * TX + threadIdx.x) * V;
  const index_t split = blockIdx.y;
  const index_t begin = split * CHUNK + threadIdx.y, end = split * CHUNK + CHUNK < R ? split * CHUNK + CHUNK : R;
  float shift[V] = {}, sum[V] = {}, squares[V] = {}, count = 0.0f;
  if (column < C && begin < end) {
    const Vec<X, V> first = Vec<X, V>::load(x + begin * C + column);
#pragma unroll
    for (int v = 0; v < V; ++v) shift[v] = first.get(v);
#pragma unroll UNROLL
    for (index_t r = begin; r < end; r += TY) {
      const Vec<X, V> values = Vec<X, V>::load(x + r * C + column);
      count += 1.0f;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float d = values.get(v) - shift[v];
        sum[v] += d;
        squares[v] += d * d;
      }
    }
  }
  __shared__ Moments rows[TY][TX * V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float mean_shift = count > 0.0f ? sum[v] / count : 0.0f;
    rows[threadIdx.y][threadIdx.x * V + v] = {count, shift[v] + mean_shift,
                                              maximum(squares[v] - sum[v] * mean_shift, 0.0f)};
  }
  __syncthreads();
  for (int j = threadIdx.y * TX + threadIdx.x; j < TX * V; j += TX * TY) {
    const int c = blockIdx.x * TX * V + j;
    if (c >= C) continue;
    Moments m = rows[0][j];
    for (int y = 1; y < TY; ++y) m = join(m, rows[y][j]);
    if (SPLITS > 1) partial[split * C + c] = m;
    else finish_channel(m, c, running_mean, running_variance, mean, inverse_std);
  }
}

// Threads (32, 8): 32 channels, the splits shared out to 8 threads each.
extern "C" __global__ void __launch_bounds__(256)
    finish(float* running_mean, float* running_variance, float* mean, float* inverse_std, const Moments* partial) {
  const int c = blockIdx.x * 32 + threadIdx.x;
  Moments m = {0.0f, 0.0f, 0.0f};
  if (c < C)
    for (int split = threadIdx.y; split < SPLITS; split += 8) m = join(m, partial[index_t(split) * C + c]);
  __shared__ Moments parts[8][32];
  parts[threadIdx.y][threadIdx.x] = m;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  m = parts[0][threadIdx.x];
  for (int y = 1; y < 8; ++y) m = join(m, parts[y][threadIdx.x]);
  finish_channel(m, c, running_mean, running_variance, mean, inverse_std);
}
