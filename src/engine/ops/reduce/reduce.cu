// SPDX-License-Identifier: Apache-2.0
// Sums or maxima of OUTPUTS expressions over an index space K x R x C in memory order, of which
// R goes. Each block reduces one piece of R; with SPLITS > 1 the pieces' results lie in
// `partial` [OUTPUTS][SPLITS][K*C] and are joined. Every order is fixed, so results repeat bit
// for bit. Further values of the expression may be stored in passing.

__device__ float combine(float a, float b) { return COMBINE(a, b); }

struct Outputs {
  float* y[OUTPUTS];
};

#if COLUMNS
// Joins what the TY threads of each column hold, in a fixed tree; those with threadIdx.y == 0 get it.
__device__ void join(ACCUMULATOR (&sums)[OUTPUTS][V], float (&results)[OUTPUTS][V]) {
  __shared__ float rows[TY][V][TX];
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
    for (int v = 0; v < V; ++v) rows[threadIdx.y][v][threadIdx.x] = results[o][v] = sums[o][v].result();
#pragma unroll
    for (int half = TREE; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y >= half || threadIdx.y + half >= TY) continue;
#pragma unroll
      for (int v = 0; v < V; ++v)
        rows[threadIdx.y][v][threadIdx.x] = results[o][v] =
            combine(results[o][v], rows[threadIdx.y + half][v][threadIdx.x]);
    }
    __syncthreads();
  }
}

// Threads (TX, TY): TX * V neighbouring columns, TY rows at a time. The block that arrives last at
// its columns joins the pieces; `arrived` counts round to zero again.
extern "C" __global__ void __launch_bounds__(TX * TY, 2) reduce(
    //@PARAMETERS
    const Outputs outputs, float* partial, unsigned* arrived) {
  const index_t column = (index_t(blockIdx.x) * TX + threadIdx.x) * V;
  const index_t split = blockIdx.y, k = blockIdx.z;
  ACCUMULATOR sums[OUTPUTS][V];
  if (column < C) {
    //@FIXED
    // All blocks sweep over R together, so that its end is in the cache for who goes through it backwards.
#pragma unroll UNROLL
    for (index_t r = split * TY + threadIdx.y; r < R; r += index_t(SPLITS) * TY) {
      const index_t e = (k * R + r) * C + column;
      //@LOADS
#pragma unroll
      for (int v = 0; v < V; ++v) {
        //@EVALUATE
        //@ACCUMULATE
      }
      //@STORES
    }
  }
  float results[OUTPUTS][V];
  join(sums, results);
  if (SPLITS > 1) {
    constexpr index_t kOutput = index_t(SPLITS) * K * C;  // partial [OUTPUTS][SPLITS][K * C]
    const index_t place = k * C + column;
    if (threadIdx.y == 0 && column < C) {
#pragma unroll
      for (int o = 0; o < OUTPUTS; ++o)
#pragma unroll
        for (int v = 0; v < V; ++v) partial[o * kOutput + split * (index_t(K) * C) + place + v] = results[o][v];
    }
    if (!last_to_arrive(arrived + k * gridDim.x + blockIdx.x, SPLITS)) return;
    ACCUMULATOR joined[OUTPUTS][V];
    if (column < C)
#pragma unroll 2
      for (index_t piece = threadIdx.y; piece < SPLITS; piece += TY) {
        float parts[OUTPUTS][V];
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o)
          load_shared_result(partial + o * kOutput + piece * (index_t(K) * C) + place, parts[o]);
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o)
#pragma unroll
          for (int v = 0; v < V; ++v) joined[o][v].add(parts[o][v]);
      }
    join(joined, results);
  }
  if (threadIdx.y != 0 || column >= C) return;
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o)
#pragma unroll
    for (int v = 0; v < V; ++v) outputs.y[o][k * C + column + v] = results[o][v];
}
#else
__device__ void put(const Outputs& outputs, float* partial, int output, index_t split, index_t j, float value) {
  if (SPLITS > 1) partial[(index_t(output) * SPLITS + split) * (index_t(K) * C) + j] = value;
  else outputs.y[output][j] = value;
}

// Threads (TX, TY): TY rows of R neighbouring elements, TX * V elements at a time.
extern "C" __global__ void __launch_bounds__(TX * TY) reduce(
    //@PARAMETERS
    const Outputs outputs, float* partial) {
  const index_t k = index_t(blockIdx.x) * TY + threadIdx.y;
  const index_t split = blockIdx.y;
  ACCUMULATOR sums[OUTPUTS];
  if (k < K) {
    const index_t end = split * CHUNK + CHUNK < R ? split * CHUNK + CHUNK : R;
#pragma unroll UNROLL
    for (index_t r = split * CHUNK + threadIdx.x * V; r < end; r += TX * V) {
      const index_t e = k * R + r;
      //@LOADS
#pragma unroll
      for (int v = 0; v < V; ++v) {
        //@EVALUATE
        //@ACCUMULATE
      }
      //@STORES
    }
  }
  __shared__ float warps[TY][TX / 32];
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
    float value = warp_reduce(sums[o].result(), combine);
    if (TX > 32) {
      if (threadIdx.x % 32 == 0) warps[threadIdx.y][threadIdx.x / 32] = value;
      __syncthreads();
      value = warps[threadIdx.y][0];
      for (int i = 1; i < TX / 32; ++i) value = combine(value, warps[threadIdx.y][i]);
      __syncthreads();
    }
    if (threadIdx.x == 0 && k < K) put(outputs, partial, o, split, k, value);
  }
}

// Threads (32, 8): 32 results, the splits shared out to 8 threads each.
extern "C" __global__ void __launch_bounds__(256) finish(const Outputs outputs, const float* partial) {
  const index_t j = index_t(blockIdx.x) * 32 + threadIdx.x;
  const int o = blockIdx.y;
  ACCUMULATOR sum;
  if (j < index_t(K) * C)
    for (int split = threadIdx.y; split < SPLITS; split += 8)
      sum.add(partial[(index_t(o) * SPLITS + split) * (index_t(K) * C) + j]);
  __shared__ float parts[8][32];
  parts[threadIdx.y][threadIdx.x] = sum.result();
  __syncthreads();
  if (threadIdx.y != 0 || j >= index_t(K) * C) return;
  float value = parts[0][threadIdx.x];
  for (int y = 1; y < 8; ++y) value = combine(value, parts[y][threadIdx.x]);
#pragma unroll
  for (int i = 0; i < OUTPUTS; ++i)
    if (i == o) outputs.y[i][j] = value;
}
#endif
