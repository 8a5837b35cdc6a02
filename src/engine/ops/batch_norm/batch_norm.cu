// SPDX-License-Identifier: Apache-2.0
// Mean and variance of each of C columns over R rows. Every thread sums the differences from
// its first element, so that a large mean costs no digits; counts, means and squared deviations
// are then joined pairwise (Chan, Golub, LeVeque 1979) in a fixed order.

#if FINISH == 0
// Mean and inverse standard deviation, and the running statistics moved.
struct Results {
  float *running_mean, *running_variance;
  const float* shift;
  float *mean, *inverse_std;
};

__device__ void finish_channel(const Moments& m, int c, const Results& to) {
  const float variance = m.m2 / float(R);
  if (to.mean) to.mean[c] = m.mean;
  if (to.inverse_std) to.inverse_std[c] = 1.0f / sqrtf(variance + EPSILON);
  if (!isfinite(m.mean) || !isfinite(m.m2)) return;
  const float moved = m.mean + (to.shift ? to.shift[c] : 0.0f);
  if (to.running_mean) to.running_mean[c] = KEEP * to.running_mean[c] + (1.0f - KEEP) * moved;
  if (to.running_variance)
    to.running_variance[c] = KEEP * to.running_variance[c] + (1.0f - KEEP) * (m.m2 / float(R - 1));
}

// From sums that the convolution made in passing. What cancels in the difference is below the rounding of
// the 16-bit values summed: (mean / deviation)^2 * 2^-24 against (mean / deviation) * 2^-11.
extern "C" __global__ void __launch_bounds__(64)
    from_sums(const Results to, const float* sums, const float* squares) {
  const int c = blockIdx.x * 64 + threadIdx.x;
  if (c >= C) return;
  const float mean = sums[c] / float(R);
  finish_channel({float(R), mean, maximum(squares[c] - sums[c] * mean, 0.0f)}, c, to);
}
#else
// Sums of the values and of their squares.
struct Results {
  float *sums, *squares;
};

__device__ void finish_channel(const Moments& m, int c, const Results& to) {
  to.sums[c] = m.mean * float(R);
  to.squares[c] = m.m2 + m.mean * m.mean * float(R);
}
#endif

// Joins what the TY threads of each column hold, in a fixed tree; those with threadIdx.y == 0 get it.
__device__ void join_rows(Moments (&m)[V]) {
  constexpr int kAtOnce = V < 4 ? V : 4;
  __shared__ Moments rows[TY][kAtOnce][TX];
#pragma unroll
  for (int from = 0; from < V; from += kAtOnce) {
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v) rows[threadIdx.y][v][threadIdx.x] = m[from + v];
#pragma unroll
    for (int half = TREE; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y >= half || threadIdx.y + half >= TY) continue;
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v)
        rows[threadIdx.y][v][threadIdx.x] = m[from + v] =
            join(m[from + v], rows[threadIdx.y + half][v][threadIdx.x]);
    }
    __syncthreads();
  }
}

// Threads (TX, TY): TX * V columns, TY rows at a time; blockIdx.y is one of SPLITS shares of R. The block that
// arrives last at its columns joins the pieces.
extern "C" __global__ void __launch_bounds__(TX * TY, 2)
    statistics(const X* x, const Results results, float* partial, unsigned* arrived) {
  const int column = (blockIdx.x * TX + threadIdx.x) * V;
  const index_t split = blockIdx.y;
  // All blocks sweep over x together, so that its end is in the cache for who goes through it backwards.
  constexpr index_t kStep = index_t(SPLITS) * TY;
  const index_t begin = split * TY + threadIdx.y;
  float shift[V] = {}, sum[V] = {}, squares[V] = {}, count = 0.0f;
  if (column < C && begin < R) {
    const Vec<X, V> first = Vec<X, V>::load(x + begin * C + column);
#pragma unroll
    for (int v = 0; v < V; ++v) shift[v] = first.get(v);
    count = float((R - 1 - begin) / kStep + 1);
#pragma unroll UNROLL
    for (index_t r = begin; r < R; r += kStep) {
      const Vec<X, V> values = Vec<X, V>::load(x + r * C + column);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float d = values.get(v) - shift[v];
        sum[v] += d;
        squares[v] += d * d;
      }
    }
  }
  Moments m[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float mean_shift = count > 0.0f ? sum[v] / count : 0.0f;
    m[v] = {count, shift[v] + mean_shift, maximum(squares[v] - sum[v] * mean_shift, 0.0f)};
  }
  join_rows(m);
  if (SPLITS > 1) {
    constexpr index_t kPart = index_t(SPLITS) * C;
    if (threadIdx.y == 0 && column < C) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        float* place = partial + split * C + column + v;  // [counts, means, squares][SPLITS][C]
        place[0] = m[v].count, place[kPart] = m[v].mean, place[2 * kPart] = m[v].m2;
      }
    }
    if (!last_to_arrive(arrived + blockIdx.x, SPLITS)) return;
#pragma unroll
    for (int v = 0; v < V; ++v) m[v] = {0.0f, 0.0f, 0.0f};
    if (column < C)
      for (index_t piece = threadIdx.y; piece < SPLITS; piece += TY) {
        float counts[V], means[V], squares_[V];
        const float* place = partial + piece * C + column;
        load_shared_result(place, counts);
        load_shared_result(place + kPart, means);
        load_shared_result(place + 2 * kPart, squares_);
#pragma unroll
        for (int v = 0; v < V; ++v) m[v] = join(m[v], {counts[v], means[v], squares_[v]});
      }
    join_rows(m);
  }
  if (threadIdx.y != 0 || column >= C) return;
#pragma unroll
  for (int v = 0; v < V; ++v)
    finish_channel(m[v], column + v, results);
}
