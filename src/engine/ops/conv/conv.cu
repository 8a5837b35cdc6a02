// SPDX-License-Identifier: Apache-2.0
// Direct convolution for any sizes, groups, types: where the library has no kernel. Sums run in a
// fixed order, so results repeat; nothing here is tuned for large layers.
// x [N,H,W,C], w [K,R,S,CG], y [N,P,Q,K]; group of k: k / KG.

extern "C" __global__ void __launch_bounds__(256) conv_forward(const X* x, const WT* w, const B* bias, Y* y) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t e = index_t(blockIdx.x) * 256 + threadIdx.x; e < index_t(N) * P * Q * K; e += stride) {
    const int k = int(e % K), q = int(e / K % Q), p = int(e / K / Q % P), n = int(e / K / Q / P);
    float sum = 0.0f;
    for (int r = 0; r < R; ++r) {
      const int h = p * STRIDE_H - PAD_TOP + r * DILATION_H;
      if (h < 0 || h >= H) continue;
      for (int s = 0; s < S; ++s) {
        const int c_w = q * STRIDE_W - PAD_LEFT + s * DILATION_W;
        if (c_w < 0 || c_w >= W) continue;
        const X* from = x + ((index_t(n) * H + h) * W + c_w) * C + k / KG * CG;
        const WT* weights = w + ((index_t(k) * R + r) * S + s) * CG;
        for (int c = 0; c < CG; ++c) sum += load_one(from + c) * load_one(weights + c);
      }
    }
    if (bias) sum += load_one(bias + k);
    store_one(y + e, sum);
  }
}

extern "C" __global__ void __launch_bounds__(256) conv_backward_data(const Y* dy, const WT* w, X* dx) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t e = index_t(blockIdx.x) * 256 + threadIdx.x; e < index_t(N) * H * W * C; e += stride) {
    // Padded images have no gradient.
    const int c = int(e % C), i_w = int(e / C % W), i_h = int(e / C / W % H), n = int(e / C / W / H);
    const int group = c / CG;
    float sum = 0.0f;
    for (int r = 0; r < R; ++r) {
      const int h = i_h + PAD_TOP - r * DILATION_H;
      if (h < 0 || h % STRIDE_H != 0 || h / STRIDE_H >= P) continue;
      for (int s = 0; s < S; ++s) {
        const int v = i_w + PAD_LEFT - s * DILATION_W;
        if (v < 0 || v % STRIDE_W != 0 || v / STRIDE_W >= Q) continue;
        const Y* from = dy + ((index_t(n) * P + h / STRIDE_H) * Q + v / STRIDE_W) * K;
        for (int k = group * KG; k < group * KG + KG; ++k)
          sum += load_one(from + k) * load_one(w + ((index_t(k) * R + r) * S + s) * CG + c % CG);
      }
    }
    store_one(dx + e, sum);
  }
}

__device__ float add(float a, float b) { return a + b; }

// One block a weight: its threads share the N*P*Q positions.
extern "C" __global__ void __launch_bounds__(256) conv_backward_weights(const X* x, const Y* dy, DW* dw) {
  const index_t e = blockIdx.x;
  const int c = int(e % CG), s = int(e / CG % S), r = int(e / CG / S % R), k = int(e / CG / S / R);
  Sum sum;
  for (index_t i = threadIdx.x; i < index_t(N) * P * Q; i += 256) {
    const int q = int(i % Q), p = int(i / Q % P), n = int(i / Q / P);
    const int h = p * STRIDE_H - PAD_TOP + r * DILATION_H, v = q * STRIDE_W - PAD_LEFT + s * DILATION_W;
    if (h < 0 || h >= H || v < 0 || v >= W) continue;
    sum.add(load_one(dy + i * K + k) * load_one(x + ((index_t(n) * H + h) * W + v) * C + k / KG * CG + c));
  }
  __shared__ float warps[8];
  const float part = warp_reduce(sum.result(), add);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float value = warps[0];
  for (int i = 1; i < 8; ++i) value += warps[i];
  store_one(dw + e, value);
}

// y += bias, a pass of its own behind a library's convolution.
extern "C" __global__ void __launch_bounds__(256) add_bias(Y* y, const B* bias) {
  const index_t stride = index_t(gridDim.x) * 256, vectors = index_t(N) * P * Q * K / V;
  for (index_t vector = index_t(blockIdx.x) * 256 + threadIdx.x; vector < vectors; vector += stride) {
    const Vec<Y, V> in = Vec<Y, V>::load(y + vector * V);
    const Vec<B, V> b = Vec<B, V>::load(bias + vector * V % K);
    Vec<Y, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.set(v, in.get(v) + b.get(v));
    out.store(y + vector * V);
  }
}

// A library's weight gradient, in its type and with padded channels, as the engine keeps it.
extern "C" __global__ void __launch_bounds__(256) unstage_weights(const STAGED* from, DW* to) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t i = index_t(blockIdx.x) * 256 + threadIdx.x; i < index_t(K) * R * S * CG; i += stride)
    store_one(to + i, load_one(from + i / CG * STAGED_C + i % CG));
}

// Weights with zeros for the channels that only pad.
extern "C" __global__ void __launch_bounds__(256) stage_weights(const WT* from, WT* to) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t i = index_t(blockIdx.x) * 256 + threadIdx.x; i < index_t(K) * R * S * STAGED_C; i += stride) {
    const int c = int(i % STAGED_C);
    store_one(to + i, c < CG ? load_one(from + i / STAGED_C * CG + c) : 0.0f);
  }
}
