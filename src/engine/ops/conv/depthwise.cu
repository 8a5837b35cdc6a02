// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution, one filter a channel: x [N,H,W,C], w [C,R,S,1], y [N,P,Q,C]. Bound by memory, so every
// value is loaded by whole vectors of neighbouring channels and used for as many results as reach it: a thread
// makes T neighbours of a row, whose windows overlap. Sums are FP32, in a fixed order.

constexpr int kLanes = LANES;  // threads along the channels

// The filters of this block's channels, [R][S][LANES * V] in FP32.
__device__ void load_filters(const WT* w, float* filters, int first_channel) {
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < R * S * kLanes * V; i += kLanes * ROWS) {
    const int tap = i / (kLanes * V), c = first_channel + i % (kLanes * V);
    filters[i] = c < C ? load_one(w + index_t(c) * (R * S) + tap) : 0.0f;
  }
  __syncthreads();
}

__device__ void load_row(const float* filters, int r, float (&row)[S][V]) {
#pragma unroll
  for (int s = 0; s < S; ++s)
#pragma unroll
    for (int v = 0; v < V; ++v) row[s][v] = filters[(r * S + s) * (kLanes * V) + threadIdx.x * V + v];
}

template <typename T_>
__device__ void store_tile(T_* to, const float (&sums)[T][V], int first, int end) {
#pragma unroll
  for (int t = 0; t < T; ++t)
    if (first + t < end) Vec<T_, V>::pack(sums[t]).store(to + index_t(t) * C);
}

// Threads (LANES, ROWS); blockIdx.y: which channels.
extern "C" __global__ void __launch_bounds__(LANES * ROWS) depthwise_forward(const X* x, const WT* w, Y* y) {
  __shared__ float filters[R * S * kLanes * V];
  const int first_channel = blockIdx.y * (kLanes * V), c = first_channel + threadIdx.x * V;
  load_filters(w, filters, first_channel);
  if (c >= C) return;
  constexpr int kTiles = (Q + T - 1) / T, kColumns = (T - 1) * STRIDE_W + S;
  for (index_t tile = index_t(blockIdx.x) * ROWS + threadIdx.y; tile < index_t(N) * P * kTiles;
       tile += index_t(gridDim.x) * ROWS) {
    const int q = int(tile % kTiles) * T, p = int(tile / kTiles % P);
    const index_t n = tile / kTiles / P;
    float sums[T][V] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int h = p * STRIDE_H - PAD_TOP + r;
      if (h < 0 || h >= H) continue;
      float filter[S][V];
      load_row(filters, r, filter);
      const X* row = x + (n * H + h) * (index_t(W) * C) + c;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int column = q * STRIDE_W - PAD_LEFT + j;
        if (column < 0 || column >= W) continue;
        const Vec<X, V> in = Vec<X, V>::load(row + index_t(column) * C);
#pragma unroll
        for (int t = 0; t < T; ++t) {
          const int s = j - t * STRIDE_W;
          if (s < 0 || s >= S) continue;
#pragma unroll
          for (int v = 0; v < V; ++v) sums[t][v] += in.get(v) * filter[s][v];
        }
      }
    }
    store_tile(y + ((n * P + p) * Q + q) * C + c, sums, q, Q);
  }
}

// T is a multiple of the stride, so that which outputs reach a pixel is known when this is compiled.
extern "C" __global__ void __launch_bounds__(LANES * ROWS) depthwise_backward_data(const Y* dy, const WT* w, X* dx) {
  __shared__ float filters[R * S * kLanes * V];
  const int first_channel = blockIdx.y * (kLanes * V), c = first_channel + threadIdx.x * V;
  load_filters(w, filters, first_channel);
  if (c >= C) return;
  // Outputs (i + PAD_LEFT - s) / STRIDE_W beyond the tile's own, of pixel i and tap s: from kFirst on.
  constexpr int kTiles = (W + T - 1) / T, kFirst = -((S - 1) / STRIDE_W), kLast = (T - 1 + PAD_LEFT) / STRIDE_W;
  for (index_t tile = index_t(blockIdx.x) * ROWS + threadIdx.y; tile < index_t(N) * H * kTiles;
       tile += index_t(gridDim.x) * ROWS) {
    const int column = int(tile % kTiles) * T, h = int(tile / kTiles % H);
    const index_t n = tile / kTiles / H;
    float sums[T][V] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int from = h + PAD_TOP - r;
      if (from < 0 || from % STRIDE_H != 0 || from / STRIDE_H >= P) continue;
      float filter[S][V];
      load_row(filters, r, filter);
      const Y* row = dy + (n * P + from / STRIDE_H) * (index_t(Q) * C) + c;
#pragma unroll
      for (int o = kFirst; o <= kLast; ++o) {
        const int q = column / STRIDE_W + o;
        if (q < 0 || q >= Q) continue;
        const Vec<Y, V> in = Vec<Y, V>::load(row + index_t(q) * C);
#pragma unroll
        for (int i = 0; i < T; ++i) {
          const int s = i + PAD_LEFT - o * STRIDE_W;
          if (s < 0 || s >= S) continue;
#pragma unroll
          for (int v = 0; v < V; ++v) sums[i][v] += in.get(v) * filter[s][v];
        }
      }
    }
    store_tile(dx + ((n * H + h) * W + column) * C + c, sums, column, W);
  }
}

// Two channels a thread, whose filter's gradient stays in registers, and so does the window of x: each step
// along a row loads one column of it. Threads (LANES, ROWS) share out the rows of y; blockIdx.y: which piece
// of them. The block that arrives last at its channels adds up the pieces.
constexpr int kPair = 2;

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
    depthwise_backward_weights(const X* x, const Y* dy, DW* dw, float* partial, unsigned* arrived) {
  const int c = (blockIdx.x * kLanes + threadIdx.x) * kPair;
  float sums[R][S][kPair] = {};
  if (c < C) {
    for (index_t line = index_t(blockIdx.y) * ROWS + threadIdx.y; line < index_t(N) * P;
         line += index_t(gridDim.y) * ROWS) {
      const int p = int(line % P);
      const index_t n = line / P;
      const Y* out = dy + line * (index_t(Q) * C) + c;
      const X* in = x + n * (index_t(H) * W * C) + c;
      float window[R][S][kPair] = {};
      const auto load_column = [&](int column, int s) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const int h = p * STRIDE_H - PAD_TOP + r;
          const bool inside = h >= 0 && h < H && column >= 0 && column < W;
          const Vec<X, kPair> value =
              inside ? Vec<X, kPair>::load(in + (index_t(h) * W + column) * C) : Vec<X, kPair>{};
#pragma unroll
          for (int v = 0; v < kPair; ++v) window[r][s][v] = inside ? value.get(v) : 0.0f;
        }
      };
#pragma unroll
      for (int s = STRIDE_W; s < S; ++s) load_column(s - STRIDE_W - PAD_LEFT, s);
      for (int q = 0; q < Q; ++q) {
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
          for (int s = 0; s + STRIDE_W < S; ++s)
#pragma unroll
            for (int v = 0; v < kPair; ++v) window[r][s][v] = window[r][s + STRIDE_W][v];
#pragma unroll
        for (int s = (S > STRIDE_W ? S - STRIDE_W : 0); s < S; ++s) load_column(q * STRIDE_W - PAD_LEFT + s, s);
        const Vec<Y, kPair> g = Vec<Y, kPair>::load(out + index_t(q) * C);
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
          for (int s = 0; s < S; ++s)
#pragma unroll
            for (int v = 0; v < kPair; ++v) sums[r][s][v] += window[r][s][v] * g.get(v);
      }
    }
  }
  // The rows of a block, one tap after another, in the order of the threads.
  __shared__ float lines[ROWS][kLanes * kPair];
  const index_t pieces = gridDim.y, taps = R * S;
#pragma unroll
  for (int tap = 0; tap < R * S; ++tap) {
#pragma unroll
    for (int v = 0; v < kPair; ++v) lines[threadIdx.y][threadIdx.x * kPair + v] = sums[tap / S][tap % S][v];
    __syncthreads();
    if (threadIdx.y == 0 && c < C)
#pragma unroll
      for (int v = 0; v < kPair; ++v) {
        float sum = 0.0f;
        for (int line = 0; line < ROWS; ++line) sum += lines[line][threadIdx.x * kPair + v];
        partial[(blockIdx.y * taps + tap) * C + c + v] = sum;
      }
    __syncthreads();
  }
  if (!last_to_arrive(arrived + blockIdx.x, gridDim.y)) return;
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < R * S * kLanes * kPair; i += kLanes * ROWS) {
    const int tap = i / (kLanes * kPair), channel = blockIdx.x * (kLanes * kPair) + i % (kLanes * kPair);
    if (channel >= C) continue;
    Sum sum;
    for (index_t piece = 0; piece < pieces; ++piece) {
      float part[1];
      load_shared_result(partial + (piece * taps + tap) * C + channel, part);
      sum.add(part[0]);
    }
    store_one(dw + index_t(channel) * taps + tap, sum.result());
  }
}
