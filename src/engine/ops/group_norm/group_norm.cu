// SPDX-License-Identifier: Apache-2.0
// Moments of each group of PER_GROUP channels of a sample of HW pixels: first those of each channel
// and piece of the pixels, then all of a group's joined.

// Threads (TX, TY): TX * V channels, TY pixels at a time; blocks: tiles of channels within pieces
// within samples. partial [N][SPLITS][C].
extern "C" __global__ void __launch_bounds__(TX * TY) channels(const X* x, Moments* partial) {
  const int c = (blockIdx.x % TILES * TX + threadIdx.x) * V;
  const index_t piece = blockIdx.x / TILES, n = piece / SPLITS, split = piece % SPLITS;
  const index_t begin = split * CHUNK + threadIdx.y, end = split * CHUNK + CHUNK < HW ? split * CHUNK + CHUNK : HW;
  const X* source = x + n * HW * C + c;
  ShiftedSums sums[V];
  float count = 0.0f;
  if (c < C && begin < end) {
    const Vec<X, V> first = Vec<X, V>::load(source + begin * C);
#pragma unroll
    for (int v = 0; v < V; ++v) sums[v].shift = first.get(v);
#pragma unroll 4
    for (index_t pixel = begin; pixel < end; pixel += TY) {
      const Vec<X, V> values = Vec<X, V>::load(source + pixel * C);
      count += 1.0f;
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v].add(values.get(v));
    }
  }
  __shared__ Moments rows[TY][TX * V];
#pragma unroll
  for (int v = 0; v < V; ++v) rows[threadIdx.y][threadIdx.x * V + v] = sums[v].moments(count);
  const int thread = threadIdx.y * TX + threadIdx.x;
  for (int half = TY / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int j = thread; j < half * TX * V; j += TX * TY) {
      Moments& m = rows[j / (TX * V)][j % (TX * V)];
      m = join(m, rows[j / (TX * V) + half][j % (TX * V)]);
    }
  }
  __syncthreads();
  for (int j = thread; j < TX * V; j += TX * TY) {
    const int column = blockIdx.x % TILES * TX * V + j;
    if (column < C) partial[piece * C + column] = rows[0][j];
  }
}

// LANES threads a group.
extern "C" __global__ void __launch_bounds__(256) groups(float* mean, float* inverse_std, const Moments* partial) {
  const index_t group = (index_t(blockIdx.x) * 256 + threadIdx.x) / LANES;
  const index_t n = group / (C / PER_GROUP), c = group % (C / PER_GROUP) * PER_GROUP;
  const int lane = threadIdx.x % LANES;
  const bool there = group < index_t(N) * (C / PER_GROUP);
  Moments m = {0.0f, 0.0f, 0.0f};
  if (there)
    for (int i = lane; i < SPLITS * PER_GROUP; i += LANES)
      m = join(m, partial[(n * SPLITS + i / PER_GROUP) * C + c + i % PER_GROUP]);
  m = join_lanes<LANES>(m);
  const float average = __shfl_sync(0xffffffffu, m.mean, 0, LANES), m2 = __shfl_sync(0xffffffffu, m.m2, 0, LANES);
  if (!there) return;
  const float inverse = 1.0f / sqrtf(m2 / float(int64(HW) * PER_GROUP) + EPSILON);
  for (int i = lane; i < PER_GROUP; i += LANES) {
    if (mean) mean[n * C + c + i] = average;
    if (inverse_std) inverse_std[n * C + c + i] = inverse;
  }
}
