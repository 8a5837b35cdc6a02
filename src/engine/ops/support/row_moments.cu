// SPDX-License-Identifier: Apache-2.0
// Mean and inverse standard deviation of ROWS rows of L neighbouring elements. Both are written
// EXPAND times in a row, by the lanes of one group.
__device__ void put(index_t row, int lane, int lanes, float average, float variance, float* mean,
                    float* inverse_std) {
  const float inverse = 1.0f / sqrtf(variance + EPSILON);
  for (int i = lane; i < EXPAND; i += lanes) {
    if (mean) mean[row * EXPAND + i] = average;
    if (inverse_std) inverse_std[row * EXPAND + i] = inverse;
  }
}

#if VECTORS > 0
// LANES threads a row, which stays in registers: first its mean, then the deviations from that.
template <int kGroup>
__device__ float sum_lanes(float value) {
#pragma unroll
  for (int mask = kGroup / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

extern "C" __global__ void __launch_bounds__(256) short_rows(const X* x, float* mean, float* inverse_std) {
  const index_t row = (index_t(blockIdx.x) * 256 + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  Vec<X, V> values[VECTORS];
  bool there[VECTORS];
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int at = (k * LANES + lane) * V;
    there[k] = row < ROWS && at < L;
    if (there[k]) values[k] = Vec<X, V>::load(x + row * L + at);
  }
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k)
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (there[k]) sum += values[k].get(v);
  const float average = sum_lanes<LANES>(sum) / float(L);
#pragma unroll
  for (int k = 0; k < VECTORS; ++k)
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (there[k]) {
        const float d = values[k].get(v) - average;
        squares += d * d;
      }
  const float variance = sum_lanes<LANES>(squares) / float(L);
  if (row < ROWS) put(row, lane, LANES, average, variance, mean, inverse_std);
}
#else
// One block for a piece of a row; with SPLITS > 1 `finish` joins the pieces.
extern "C" __global__ void __launch_bounds__(256)
    long_rows(const X* x, float* mean, float* inverse_std, Moments* partial) {
  const index_t row = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
  const index_t begin = split * CHUNK + threadIdx.x * V,
                end = split * CHUNK + CHUNK < L ? split * CHUNK + CHUNK : L;
  const X* source = x + row * L;
  ShiftedSums sums;
  float count = 0.0f;
  if (begin < end) sums.shift = load_one(source + begin);
#pragma unroll 4
  for (index_t i = begin; i < end; i += 256 * V) {
    const Vec<X, V> values = Vec<X, V>::load(source + i);
    count += float(V);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(values.get(v));
  }
  __shared__ Moments warps[8];
  Moments m = join_lanes<32>(sums.moments(count));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = m;
  __syncthreads();
  m = warps[0];
  for (int i = 1; i < 8; ++i) m = join(m, warps[i]);
  if (SPLITS == 1)
    put(row, threadIdx.x, 256, m.mean, m.m2 / float(L), mean, inverse_std);
  else if (threadIdx.x == 0)
    partial[blockIdx.x] = m;
}

// A warp a row.
extern "C" __global__ void __launch_bounds__(256)
    finish(float* mean, float* inverse_std, const Moments* partial) {
  const index_t row = (index_t(blockIdx.x) * 256 + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  Moments m = {0.0f, 0.0f, 0.0f};
  if (row < ROWS)
    for (int split = lane; split < SPLITS; split += 32) m = join(m, partial[row * SPLITS + split]);
  m = join_lanes<32>(m);
  const float average = __shfl_sync(0xffffffffu, m.mean, 0), m2 = __shfl_sync(0xffffffffu, m.m2, 0);
  if (row < ROWS) put(row, lane, 32, average, m2 / float(L), mean, inverse_std);
}
#endif
