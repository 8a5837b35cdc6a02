// SPDX-License-Identifier: Apache-2.0
// Windowed pooling, V channels a thread. The backward kernels gather: each input element asks
// the windows that cover it, so no two threads write one address and the order is fixed.

// Windows along one axis that cover position i: first .. last.
__device__ void covering(int i, int kernel, int stride, int dilation, int before, int outputs, int& first, int& last) {
  const int reach = (kernel - 1) * dilation;
  const int low = i + before - reach;
  first = low <= 0 ? 0 : (low + stride - 1) / stride;
  last = (i + before) / stride;
  if (last > outputs - 1) last = outputs - 1;
}

struct Place {
  int c, w, h, n;
  __device__ Place(index_t vector, int width, int height) {
    c = int(vector % (C / V)) * V, vector /= C / V;
    w = int(vector % width), vector /= width;
    h = int(vector % height);
    n = int(vector / height);
  }
};

extern "C" __global__ void __launch_bounds__(256) max_pool(const X* x, X* y, I* index) {
  for (index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x; vector < OUTPUT_VECTORS;
       vector += index_t(gridDim.x) * 256) {
    const Place at(vector, Q, P);
    float best[V];
    int where[V];
#pragma unroll
    for (int v = 0; v < V; ++v) best[v] = -__int_as_float(0x7f800000), where[v] = -1;
    for (int r = 0; r < KERNEL_H; ++r) {
      const int h = at.h * STRIDE_H - PAD_TOP + r * DILATION_H;
      if (h < 0 || h >= H) continue;
      for (int s = 0; s < KERNEL_W; ++s) {
        const int w = at.w * STRIDE_W - PAD_LEFT + s * DILATION_W;
        if (w < 0 || w >= W) continue;
        const Vec<X, V> values = Vec<X, V>::load(x + ((index_t(at.n) * H + h) * W + w) * C + at.c);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float value = values.get(v);
          // The first counts even at minus infinity; a NaN beats all, and stays.
          if (where[v] < 0 || value > best[v] || (value != value && best[v] == best[v])) {
            best[v] = value;
            where[v] = r * KERNEL_W + s;
          }
        }
      }
    }
    Vec<X, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, best[v]);
    out.store(y + vector * V);
    if (index) {
      Vec<I, V> places;
#pragma unroll
      for (int v = 0; v < V; ++v) places.set_raw(v, unsigned(where[v] < 0 ? 0 : where[v]));
      places.store(index + vector * V);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) max_pool_backward(const DY* dy, const I* index, DX* dx) {
  for (index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x; vector < INPUT_VECTORS;
       vector += index_t(gridDim.x) * 256) {
    const Place at(vector, W, H);
    float sum[V] = {};
    int p0, p1, q0, q1;
    covering(at.h, KERNEL_H, STRIDE_H, DILATION_H, PAD_TOP, P, p0, p1);
    covering(at.w, KERNEL_W, STRIDE_W, DILATION_W, PAD_LEFT, Q, q0, q1);
    for (int p = p0; p <= p1; ++p) {
      const int r = at.h + PAD_TOP - p * STRIDE_H;
      if (r % DILATION_H != 0) continue;
      for (int q = q0; q <= q1; ++q) {
        const int s = at.w + PAD_LEFT - q * STRIDE_W;
        if (s % DILATION_W != 0) continue;
        const unsigned place = unsigned(r / DILATION_H * KERNEL_W + s / DILATION_W);
        const index_t from = ((index_t(at.n) * P + p) * Q + q) * C + at.c;
        const Vec<I, V> places = Vec<I, V>::load(index + from);
        const Vec<DY, V> gradients = Vec<DY, V>::load(dy + from);
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (places.raw(v) == place) sum[v] += gradients.get(v);
      }
    }
    Vec<DX, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, sum[v]);
    out.store(dx + vector * V);
  }
}

// 1 / the divisor of the window at (p, q): what lies inside the input, or inside input and
// explicit padding, never what hangs over by ceil mode.
__device__ float window_share(int p, int q) {
  int h0 = p * STRIDE_H - PAD_TOP, w0 = q * STRIDE_W - PAD_LEFT;
  int h1 = h0 + KERNEL_H, w1 = w0 + KERNEL_W;
  if (COUNT_PAD) {
    if (h1 > H + PAD_BOTTOM) h1 = H + PAD_BOTTOM;
    if (w1 > W + PAD_RIGHT) w1 = W + PAD_RIGHT;
  } else {
    if (h0 < 0) h0 = 0;
    if (w0 < 0) w0 = 0;
    if (h1 > H) h1 = H;
    if (w1 > W) w1 = W;
  }
  return 1.0f / float((h1 - h0) * (w1 - w0));
}

extern "C" __global__ void __launch_bounds__(256) average_pool(const X* x, X* y) {
  for (index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x; vector < OUTPUT_VECTORS;
       vector += index_t(gridDim.x) * 256) {
    const Place at(vector, Q, P);
    float sum[V] = {};
    for (int r = 0; r < KERNEL_H; ++r) {
      const int h = at.h * STRIDE_H - PAD_TOP + r;
      if (h < 0 || h >= H) continue;
      for (int s = 0; s < KERNEL_W; ++s) {
        const int w = at.w * STRIDE_W - PAD_LEFT + s;
        if (w < 0 || w >= W) continue;
        const Vec<X, V> values = Vec<X, V>::load(x + ((index_t(at.n) * H + h) * W + w) * C + at.c);
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += values.get(v);
      }
    }
    const float share = window_share(at.h, at.w);
    Vec<X, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, sum[v] * share);
    out.store(y + vector * V);
  }
}

extern "C" __global__ void __launch_bounds__(256) average_pool_backward(const DY* dy, DX* dx) {
  for (index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x; vector < INPUT_VECTORS;
       vector += index_t(gridDim.x) * 256) {
    const Place at(vector, W, H);
    float sum[V] = {};
    int p0, p1, q0, q1;
    covering(at.h, KERNEL_H, STRIDE_H, 1, PAD_TOP, P, p0, p1);
    covering(at.w, KERNEL_W, STRIDE_W, 1, PAD_LEFT, Q, q0, q1);
    for (int p = p0; p <= p1; ++p)
      for (int q = q0; q <= q1; ++q) {
        const float share = window_share(p, q);
        const Vec<DY, V> gradients = Vec<DY, V>::load(dy + ((index_t(at.n) * P + p) * Q + q) * C + at.c);
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += gradients.get(v) * share;
      }
    Vec<DX, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, sum[v]);
    out.store(dx + vector * V);
  }
}
