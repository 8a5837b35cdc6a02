// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution, one filter a channel: x [N,H,W,C], w [C,R,S,1], y [N,P,Q,C]. A thread has two channels,
// their filters in registers, and a strip of T columns, down which it walks: every row is loaded and converted
// once and used for all the results that it reaches, whose sums (FP32, in a fixed order) move up with the walk.

constexpr int kPair = 2;                                   // channels a thread
constexpr int kLive = (R + STRIDE_H - 1) / STRIDE_H;       // rows of y that a row of x reaches, at most
constexpr int kColumns = (T - 1) * STRIDE_W + S;           // of x under T columns of y
constexpr int kWalk = P + kLive - 1;                       // steps of STRIDE_H rows of x, behind which all y are done

__device__ int first_channel() { return (blockIdx.y * LANES + threadIdx.x) * kPair; }

__device__ void load_filter(const WT* w, int c, float (&filter)[R][S][kPair]) {
#pragma unroll
  for (int i = 0; i < R * S; ++i)
#pragma unroll
    for (int v = 0; v < kPair; ++v) filter[i / S][i % S][v] = load_one(w + index_t(c + v) * (R * S) + i);
}

// Columns first, first + 1, ... of a row as they lie in memory; zeros outside of [0, end), and everywhere if not `inside`.
template <typename E, int COLUMNS>
__device__ void load_columns(const E* row, int first, int end, bool inside, Vec<E, kPair> (&to)[COLUMNS]) {
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j) {
    const int column = first + j;
    const bool there = inside && column >= 0 && column < end;
    to[j] = there ? Vec<E, kPair>::load(row + index_t(column) * C) : Vec<E, kPair>{};
  }
}

template <typename E, int COLUMNS>
__device__ void widen(const Vec<E, kPair> (&from)[COLUMNS], float (&to)[COLUMNS][kPair]) {
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
    for (int v = 0; v < kPair; ++v) to[j][v] = from[j].get(v);
}

template <typename E>
__device__ void store_columns(E* to, const float (&sums)[T][kPair], int first, int end) {
#pragma unroll
  for (int t = 0; t < T; ++t)
    if (first + t < end) Vec<E, kPair>::pack(sums[t]).store(to + index_t(t) * C);
}

// Rows move up by `BY`; the last ones are zero.
template <int BY, int ROWS_, int COLUMNS>
__device__ void move_up(float (&rows)[ROWS_][COLUMNS][kPair]) {
#pragma unroll
  for (int r = 0; r < ROWS_; ++r)
#pragma unroll
    for (int t = 0; t < COLUMNS; ++t)
#pragma unroll
      for (int v = 0; v < kPair; ++v) rows[r][t][v] = r + BY < ROWS_ ? rows[r + BY][t][v] : 0.0f;
}

// What every thread has for its channels is added up over the threads of a block, in their order, to its part of
// partial [blockIdx.x][COUNT][C].
template <int COUNT>
__device__ void leave_parts(const float (&values)[COUNT][kPair], int c, float* partial) {
  __shared__ float lines[ROWS][LANES * kPair];
  float* part = partial + index_t(blockIdx.x) * (COUNT * C);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int v = 0; v < kPair; ++v) lines[threadIdx.y][threadIdx.x * kPair + v] = values[i][v];
    __syncthreads();
    if (threadIdx.y == 0 && c < C)
#pragma unroll
      for (int v = 0; v < kPair; ++v) {
        float sum = values[i][v];
#pragma unroll 1
        for (int line = 1; line < ROWS; ++line) sum += lines[line][threadIdx.x * kPair + v];
        part[i * C + c + v] = sum;
      }
    __syncthreads();
  }
}

// Threads (32, kSharers): number blockIdx.x * 32 + threadIdx.x of [COUNT][C], whose PIECES parts are shared out; the
// first sharer gets the sum.
constexpr int kSharers = 32;
template <int COUNT>
__device__ float add_parts(const float* partial, int number) {
  __shared__ float lines[kSharers][32];
  float sum = 0.0f;
  if (number < COUNT * C)
#pragma unroll 4
    for (int piece = threadIdx.y; piece < PIECES; piece += kSharers)
      sum += partial[index_t(piece) * (COUNT * C) + number];
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return 0.0f;
  for (int sharer = 1; sharer < kSharers; ++sharer) sum += lines[sharer][threadIdx.x];
  return sum;
}

#if DIRECTION == 0

__device__ void add_columns(const float (&columns)[T][kPair], int first, float (&totals)[2][kPair]) {
#pragma unroll
  for (int t = 0; t < T; ++t)
    if (first + t < Q)
#pragma unroll
      for (int v = 0; v < kPair; ++v) totals[0][v] += columns[t][v], totals[1][v] += columns[t][v] * columns[t][v];
}

// Threads (LANES, ROWS); blockIdx.y: which channels. Strips of y. In step i the rows i * STRIDE_H - PAD_TOP + j of x
// come in; row r of the filter takes them to row i - (r - j) / STRIDE_H of y, whose sums are in place
// kLive - 1 - (r - j) / STRIDE_H.
// With SUMS the blocks leave their sums of y and of its squares in partial [blockIdx.x][2][C].
extern "C" __global__ void __launch_bounds__(LANES * ROWS, 3)
    depthwise_forward(const X* x, const WT* w, Y* y, float* partial) {
  const int c = first_channel();
  if (!SUMS && c >= C) return;
  float filter[R][S][kPair], totals[2][kPair] = {};
  if (c < C) load_filter(w, c, filter);
  constexpr int kStrips = (Q + T - 1) / T;
  for (index_t strip = index_t(blockIdx.x) * ROWS + threadIdx.y; c < C && strip < index_t(N) * kStrips;
       strip += index_t(gridDim.x) * ROWS) {
    const int q = int(strip % kStrips) * T, column = q * STRIDE_W - PAD_LEFT;
    const index_t n = strip / kStrips;
    const X* in = x + n * (index_t(H) * W * C) + c;
    Y* out = y + (n * (index_t(P) * Q) + q) * C + c;
    float sums[kLive][T][kPair] = {};
    Vec<X, kPair> next[kColumns];
    load_columns(in - index_t(PAD_TOP) * W * C, column, W, PAD_TOP == 0, next);
#pragma unroll kLive
    for (int step = 0; step < kWalk; ++step) {
#pragma unroll
      for (int j = 0; j < STRIDE_H; ++j) {
        float row[kColumns][kPair];
        widen(next, row);
        const int h = step * STRIDE_H - PAD_TOP + j, below = h + 1;  // loaded while this one is used
        load_columns(in + index_t(below) * (W * C), column, W, below >= 0 && below < H, next);
        if (h < 0 || h >= H) continue;
#pragma unroll
        for (int r = j; r < R; r += STRIDE_H)
#pragma unroll
          for (int t = 0; t < T; ++t)
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
              for (int v = 0; v < kPair; ++v)
                sums[kLive - 1 - r / STRIDE_H][t][v] += row[t * STRIDE_W + s][v] * filter[r][s][v];
      }
      const int p = step - (kLive - 1);
      if (p >= 0) store_columns(out + index_t(p) * (Q * C), sums[0], q, Q);
      if (SUMS && p >= 0) add_columns(sums[0], q, totals);
      move_up<1>(sums);
    }
  }
  if (SUMS) leave_parts(totals, c, partial);
}

#if SUMS
extern "C" __global__ void __launch_bounds__(32 * kSharers)
    depthwise_add_parts(const float* partial, float* sums, float* squares) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  const float sum = add_parts<2>(partial, i);
  if (threadIdx.y == 0 && i < 2 * C) (i < C ? sums : squares)[i % C] = sum;
}
#endif

#elif DIRECTION == 1

// Strips of x; T is a multiple of the stride, so that which columns of y reach a pixel is known when this is
// compiled. Row p of y reaches the rows p * STRIDE_H - PAD_TOP + r of x; the first STRIDE_H of them are done then.
extern "C" __global__ void __launch_bounds__(LANES * ROWS, 3) depthwise_backward_data(const Y* dy, const WT* w, X* dx) {
  const int c = first_channel();
  if (c >= C) return;
  float filter[R][S][kPair];
  load_filter(w, c, filter);
  constexpr int kStrips = (W + T - 1) / T, kSteps = (H + PAD_TOP + STRIDE_H - 1) / STRIDE_H;
  // Column i of the strip and column s of the filter meet column first / STRIDE_W + (i + PAD_LEFT - s) / STRIDE_W of y.
  constexpr int kFirst = -((S - 1) / STRIDE_W), kReached = (T - 1 + PAD_LEFT) / STRIDE_W - kFirst + 1;
  for (index_t strip = index_t(blockIdx.x) * ROWS + threadIdx.y; strip < index_t(N) * kStrips;
       strip += index_t(gridDim.x) * ROWS) {
    const int first = int(strip % kStrips) * T, q = first / STRIDE_W + kFirst;
    const index_t n = strip / kStrips;
    const Y* in = dy + n * (index_t(P) * Q * C) + c;
    X* out = dx + (n * (index_t(H) * W) + first) * C + c;
    float sums[R][T][kPair] = {};
    Vec<Y, kPair> next[kReached];
    load_columns(in, q, Q, true, next);
#pragma unroll kLive
    for (int p = 0; p < kSteps; ++p) {
      float row[kReached][kPair];
      widen(next, row);
      load_columns(in + index_t(p + 1) * (Q * C), q, Q, p + 1 < P, next);
#pragma unroll
      for (int r = 0; r < R; ++r)
#pragma unroll
        for (int o = 0; o < kReached; ++o)
#pragma unroll
          for (int i = 0; i < T; ++i) {
            const int s = i + PAD_LEFT - (o + kFirst) * STRIDE_W;
            if (s < 0 || s >= S) continue;
#pragma unroll
            for (int v = 0; v < kPair; ++v) sums[r][i][v] += row[o][v] * filter[r][s][v];
          }
#pragma unroll
      for (int r = 0; r < STRIDE_H; ++r) {
        const int h = p * STRIDE_H - PAD_TOP + r;
        if (h >= 0 && h < H) store_columns(out + index_t(h) * (W * C), sums[r], first, W);
      }
      move_up<STRIDE_H>(sums);
    }
  }
}

#else

// The forward walk, with the filter's gradient in registers and the last rows of dy instead of sums. Every block
// leaves its part in partial.
extern "C" __global__ void __launch_bounds__(LANES * ROWS, 3)
    depthwise_backward_weights(const X* x, const Y* dy, float* partial) {
  const int c = first_channel();
  float sums[R * S][kPair] = {};
  constexpr int kStrips = (Q + T - 1) / T;
  for (index_t strip = index_t(blockIdx.x) * ROWS + threadIdx.y; c < C && strip < index_t(N) * kStrips;
       strip += index_t(gridDim.x) * ROWS) {
    const int q = int(strip % kStrips) * T, column = q * STRIDE_W - PAD_LEFT;
    const index_t n = strip / kStrips;
    const X* in = x + n * (index_t(H) * W * C) + c;
    const Y* out = dy + n * (index_t(P) * Q * C) + c;
    float gradients[kLive][T][kPair] = {};
    Vec<X, kPair> next[kColumns];
    Vec<Y, kPair> gradient[T];
    load_columns(in - index_t(PAD_TOP) * W * C, column, W, PAD_TOP == 0, next);
    load_columns(out, q, Q, true, gradient);
    // kLive steps, behind which every row is in its former place, without a move.
    for (int begin = 0; begin < kWalk; begin += kLive) {
#pragma unroll
      for (int i = 0; i < kLive; ++i) {
        const int step = begin + i;
        move_up<1>(gradients);
        widen(gradient, gradients[kLive - 1]);
        load_columns(out + index_t(step + 1) * (Q * C), q, Q, step + 1 < P, gradient);
#pragma unroll
        for (int j = 0; j < STRIDE_H; ++j) {
          float row[kColumns][kPair];
          widen(next, row);
          const int h = step * STRIDE_H - PAD_TOP + j, below = h + 1;
          load_columns(in + index_t(below) * (W * C), column, W, below >= 0 && below < H, next);
          if (h < 0 || h >= H) continue;
#pragma unroll
          for (int r = j; r < R; r += STRIDE_H)
#pragma unroll
            for (int t = 0; t < T; ++t)
#pragma unroll
              for (int s = 0; s < S; ++s)
#pragma unroll
                for (int v = 0; v < kPair; ++v)
                  sums[r * S + s][v] += row[t * STRIDE_W + s][v] * gradients[kLive - 1 - r / STRIDE_H][t][v];
        }
      }
    }
  }
  leave_parts(sums, c, partial);
}

extern "C" __global__ void __launch_bounds__(32 * kSharers) depthwise_add_parts(const float* partial, DW* dw) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  const float sum = add_parts<R * S>(partial, i);
  if (threadIdx.y == 0 && i < R * S * C) store_one(dw + index_t(i % C) * (R * S) + i / C, sum);
}

#endif
