// SPDX-License-Identifier: Apache-2.0
// x [N,H,W,C] padded to y [N,P,Q,K]; V channels a thread. MODE: 0 constant, 1 reflect, 2 edge.

// Where position i of a padded axis comes from, or -1.
__device__ int source_of(int i, int before, int size) {
  const int at = i - before;
  if (at >= 0 && at < size) return at;
  if (MODE == 0) return -1;
  if (MODE == 1) return at < 0 ? -at : 2 * (size - 1) - at;
  return at < 0 ? 0 : size - 1;
}

extern "C" __global__ void __launch_bounds__(256) pad(const X* __restrict__ x, X* __restrict__ y) {
  const index_t first = index_t(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
  Vec<X, V> values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    index_t at = first + i * 256;
    if (at >= index_t(N) * P * Q * (K / V)) continue;
    const int c = source_of(int(at % (K / V)) * V, C_BEFORE, C);
    at /= K / V;
    const int w = source_of(int(at % Q), LEFT, W);
    at /= Q;
    const int h = source_of(int(at % P), TOP, H);
    const index_t n = at / P;
    if (h >= 0 && w >= 0 && c >= 0) {
      values[i] = Vec<X, V>::load(x + ((n * H + h) * W + w) * C + c);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) values[i].set(v, VALUE);
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < index_t(N) * P * Q * (K / V)) values[i].store(y + (first + i * 256) * V);
}

// The positions of a padded axis that come from position i, in ascending order: at most `count`, of
// which those outside are none.
struct Readers {
  int first, count, i, before, size, padded;
  __device__ Readers(int i, int before, int after, int size) : i(i), before(before), size(size) {
    padded = before + size + after;
    first = i + before, count = 1;
    if (MODE == 1) count = 3;
    if (MODE == 2) {
      if (i == size - 1) count += after;
      if (i == 0) first = 0, count += before;
    }
  }
  __device__ int at(int k) const {
    if (MODE != 1) return first + k < 0 || first + k >= padded ? -1 : first + k;
    if (k == 1) return i + before;
    if (k == 0) return i >= 1 && i <= before ? before - i : -1;
    const int mirrored = before + 2 * (size - 1) - i;
    return i < size - 1 && mirrored < padded ? mirrored : -1;
  }
};

// Each element of dx gathers those that were copied from it.
extern "C" __global__ void __launch_bounds__(256) pad_backward(const X* __restrict__ dy, X* __restrict__ dx) {
  const index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x;
  if (vector >= index_t(N) * H * W * (C / V)) return;
  index_t at = vector;
  const Readers c(int(at % (C / V)) * V, C_BEFORE, C_AFTER, C);
  at /= C / V;
  const Readers w(int(at % W), LEFT, RIGHT, W);
  at /= W;
  const Readers h(int(at % H), TOP, BOTTOM, H);
  const index_t n = at / H;
  float sums[V] = {};
  for (int i = 0; i < h.count; ++i)
    for (int j = 0; j < w.count; ++j)
      for (int k = 0; k < (PADS_CHANNELS ? c.count : 1); ++k) {
        const int p = h.at(i), q = w.at(j), channel = PADS_CHANNELS ? c.at(k) : c.i;
        if (p < 0 || q < 0 || channel < 0) continue;
        const Vec<X, V> values = Vec<X, V>::load(dy + ((n * P + p) * Q + q) * K + channel);
#pragma unroll
        for (int v = 0; v < V; ++v) sums[v] += values.get(v);
      }
  Vec<X, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) out.set(v, sums[v]);
  out.store(dx + vector * V);
}
