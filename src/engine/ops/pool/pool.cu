// SPDX-License-Identifier: Apache-2.0
// Windowed pooling, V channels a thread. All that a thread reads is on its way before the first of it is used. The
// backward kernels gather: each input element asks the windows that cover it, so no two threads write one address
// and the order is fixed.

struct Place {
  int c, w, h, n;
  __device__ Place(index_t number, int width, int height) {
    c = int(number % (C / V)) * V, number /= C / V;
    w = int(number % width), number /= width;
    h = int(number % height);
    n = int(number / height);
  }
};

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

#if !BACKWARD

using Values = Vec<X, V>;
constexpr bool kWhole = WHOLE;                                         // all that TILE results read, at once
constexpr int kRows = kWhole ? (TILE - 1) * STRIDE_H + KERNEL_H : 1;   // of x, DILATION_H apart
constexpr int kColumns = kWhole || KERNEL_W <= 16 ? KERNEL_W : 8;
constexpr int kWindowRows = kWhole ? KERNEL_H : 1;

// The first result of a thread's strip of TILE, one below the other, and where its window begins.
struct Strip {
  Place at;
  int p, h, w;
  __device__ Strip(index_t number)
      : at(number, Q, (P + TILE - 1) / TILE),
        p(at.h * TILE),
        h(p * STRIDE_H - PAD_TOP),
        w(at.w * STRIDE_W - PAD_LEFT) {}
  __device__ index_t result(int t) const { return ((index_t(at.n) * P + p + t) * Q + at.w) * C + at.c; }
};

// Is the tap of window row `row` and column `column` on the input?
__device__ bool is_inside(const Strip& strip, int row, int column) {
  const int h = strip.h + row * DILATION_H, w = strip.w + column * DILATION_W;
  return h >= 0 && h < H && w >= 0 && w < W && column < KERNEL_W;
}

__device__ Values filled(unsigned word) {
  Values r;
#pragma unroll
  for (int i = 0; i < Values::kWords; ++i) r.words[i] = word;
  return r;
}

__device__ void load_taps(const X* x, const Strip& strip, int row, int column, unsigned outside,
                          Values (&to)[kRows][kColumns]) {
  const int h = strip.h + row * DILATION_H, w = strip.w + column * DILATION_W;
  const int64 from = ((int64(strip.at.n) * H + h) * W + w) * C + strip.at.c;  // the rest are constants
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int s = 0; s < kColumns; ++s)
      to[r][s] = is_inside(strip, row + r, column + s)
                     ? Values::load(x + (from + int64(r * DILATION_H * W + s * DILATION_W) * C))
                     : filled(outside);
}
#endif

#if !BACKWARD && !AVERAGE

using Lanes = Packed<X>;
constexpr unsigned kLeast = LEAST;  // a word: no value is below
constexpr unsigned kOne = Lanes::kEach == 2 ? 0x10001u : 1u;

// Tap `first`, ... of a window along one axis is the first on the input; 0 where there is none.
__device__ int first_tap(int begin, int dilation, int end) {
  const int first = begin >= 0 ? 0 : (-begin + dilation - 1) / dilation;
  return begin + first * dilation < end ? first : -1;
}

// The maximum so far and its place in the window that begins at (h, w), by words of X. The first of equal ones counts,
// even at minus infinity (of two zeros either sign may come out), and the first NaN beats all.
struct Best {
  unsigned value[Values::kWords], place[Values::kWords];

  // What is not above kLeast counts as that, so the first tap of all has it.
  __device__ void begin(int h, int w) {
    const int r = first_tap(h, DILATION_H, H), s = first_tap(w, DILATION_W, W);
    const bool any = r >= 0 && s >= 0;
#pragma unroll
    for (int i = 0; i < Values::kWords; ++i)
      value[i] = any ? kLeast : Lanes::kLowest, place[i] = any ? unsigned(r * KERNEL_W + s) * kOne : 0u;
  }
  __device__ void take(const Values& values, unsigned tap) {
#pragma unroll
    for (int i = 0; i < Values::kWords; ++i) {
      const unsigned above = Lanes::greater(values.words[i], value[i]);
      value[i] = Lanes::maximum(value[i], values.words[i]);
      place[i] = (above & (tap * kOne)) | (~above & place[i]);
    }
  }
  __device__ unsigned nan(int i) const { return Lanes::is_nan(value[i]); }
  // NaN is above nothing, so take() has not seen where it is: `tap`, where there was none `before`.
  __device__ void put_nan(const Values& values, unsigned tap, const unsigned (&before)[Values::kWords]) {
#pragma unroll
    for (int i = 0; i < Values::kWords; ++i) {
      const unsigned here = Lanes::is_nan(values.words[i]) & ~before[i];
      place[i] = (here & (tap * kOne)) | (~here & place[i]);
    }
  }
  __device__ Vec<I, V> places() const {
    Vec<I, V> r;
#pragma unroll
    for (int v = 0; v < V; ++v)
      r.set_raw(v, Lanes::kEach == 1 ? place[v] : (place[v / 2] >> (v % 2 * 16)) & 0xffffu);
    return r;
  }
};

// The taps that have been loaded, of the window that begins at `first` among them.
__device__ void take_all(const Values (&taps)[kRows][kColumns], int first, int row, int column, Best& best) {
  unsigned before[Values::kWords] = {};
  if (!kWhole)
#pragma unroll
    for (int i = 0; i < Values::kWords; ++i) before[i] = best.nan(i);
#pragma unroll
  for (int r = 0; r < kWindowRows; ++r)
#pragma unroll
    for (int s = 0; s < kColumns; ++s)
      best.take(taps[first + r][s], unsigned((row + r) * KERNEL_W + column + s));
  unsigned nans = 0;
#pragma unroll
  for (int i = 0; i < Values::kWords; ++i) nans |= best.nan(i) & ~before[i];
  if (nans == 0) return;
#pragma unroll
  for (int i = kWindowRows * kColumns - 1; i >= 0; --i)
    best.put_nan(taps[first + i / kColumns][i % kColumns],
                 unsigned((row + i / kColumns) * KERNEL_W + column + i % kColumns), before);
}

// With COMPUTES the marked lines, generated from an expression, make the taps' values of its operands: once for each
// tap, rounded as if they had been stored. Whoever wrote what is read then was a convolution, whose end is in the
// cache still; else it was an expression, which went to the beginning.
extern "C" __global__ void __launch_bounds__(256, 2) max_pool(
    //@PARAMETERS
    X* y, I* index) {
  const index_t first = index_t(blockIdx.x) * 256 + threadIdx.x;
  //@FIXED
  for (index_t rest = first; rest < NUMBERS; rest += index_t(gridDim.x) * 256) {
    const Strip strip(COMPUTES ? index_t(NUMBERS) - 1 - rest : rest);
    //@LOADS
    Best best[TILE];
#pragma unroll
    for (int t = 0; t < TILE; ++t) best[t].begin(strip.h + t * STRIDE_H, strip.w);
#pragma unroll 1
    for (int row = 0; row < KERNEL_H; row += kWindowRows)
#pragma unroll 1
      for (int column = 0; column < KERNEL_W; column += kColumns) {
        Values taps[kRows][kColumns];
        load_taps(x, strip, row, column, Lanes::kLowest, taps);
#if COMPUTES
#pragma unroll
        for (int i = 0; i < kRows * kColumns; ++i) {
          const Values wide = taps[i / kColumns][i % kColumns];
          float value[V];
#pragma unroll
          for (int v = 0; v < V; ++v) {
            //@EVALUATE
          }
          taps[i / kColumns][i % kColumns] = is_inside(strip, row + i / kColumns, column + i % kColumns)
                                                 ? Values::pack(value)
                                                 : filled(Lanes::kLowest);
        }
#endif
#pragma unroll
        for (int t = 0; t < TILE; ++t) take_all(taps, t * STRIDE_H, row, column, best[t]);
      }
#pragma unroll
    for (int t = 0; t < TILE; ++t) {
      if (strip.p + t >= P) break;
      Values out;
#pragma unroll
      for (int i = 0; i < Values::kWords; ++i) out.words[i] = best[t].value[i];
      out.store(y + strip.result(t));
      if (index) best[t].places().store(index + strip.result(t));
    }
  }
}
#endif

#if !BACKWARD && AVERAGE
extern "C" __global__ void __launch_bounds__(256, 2) average_pool(const X* x, X* y) {
  for (index_t number = index_t(blockIdx.x) * 256 + threadIdx.x; number < NUMBERS; number += index_t(gridDim.x) * 256) {
    const Strip strip(number);
    float sums[TILE][V] = {};
#pragma unroll 1
    for (int row = 0; row < KERNEL_H; row += kWindowRows)
#pragma unroll 1
      for (int column = 0; column < KERNEL_W; column += kColumns) {
        Values taps[kRows][kColumns];
        load_taps(x, strip, row, column, 0, taps);
#pragma unroll
        for (int t = 0; t < TILE; ++t)
#pragma unroll
          for (int i = 0; i < kWindowRows * kColumns; ++i)
#pragma unroll
            for (int v = 0; v < V; ++v) sums[t][v] += taps[t * STRIDE_H + i / kColumns][i % kColumns].get(v);
      }
#pragma unroll
    for (int t = 0; t < TILE; ++t) {
      if (strip.p + t >= P) break;
      const float share = window_share(strip.p + t, strip.at.w);
      Values out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.set(v, sums[t][v] * share);
      out.store(y + strip.result(t));
    }
  }
}
#endif

#if BACKWARD

// What a window has to say, and to whom. Average pools say it to all of their elements.
struct Window {
  Vec<DY, V> gradients;
#if AVERAGE
  float share;
#else
  Vec<I, V> places;
#endif
  __device__ void load(const DY* dy, const I* index, int64 from, [[maybe_unused]] int p, [[maybe_unused]] int q) {
    gradients = Vec<DY, V>::load(dy + from);
#if AVERAGE
    share = window_share(p, q);
#else
    places = Vec<I, V>::load(index + from);
#endif
  }
  // What its tap r, s gets.
  __device__ void add_to(float (&sum)[V], [[maybe_unused]] int r, [[maybe_unused]] int s) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
#if AVERAGE
      sum[v] += gradients.get(v) * share;
#else
      if (places.raw(v) == unsigned(r * KERNEL_W + s)) sum[v] += gradients.get(v);
#endif
    }
  }
};

// From the end to the beginning: the reduction that reads dx next begins with what is in the cache still.
#if WHOLE

// A thread has the STRIDE_H x STRIDE_W elements that the same windows cover, kLiveH x kLiveW of them at most:
// with the padding counted, those from (i * STRIDE_H, j * STRIDE_W) on. Which of their taps an element is, the compiler
// knows.
constexpr int kReachH = (KERNEL_H - 1) * DILATION_H, kReachW = (KERNEL_W - 1) * DILATION_W;
constexpr int kLiveH = kReachH / STRIDE_H + 1, kLiveW = kReachW / STRIDE_W + 1;

__device__ void gather(const DY* dy, const I* index, DX* dx) {
  for (index_t rest = index_t(blockIdx.x) * 256 + threadIdx.x; rest < NUMBERS; rest += index_t(gridDim.x) * 256) {
    const Place at(index_t(NUMBERS) - 1 - rest, TILES_W, TILES_H);
    const int i = at.h + PAD_TOP / STRIDE_H, j = at.w + PAD_LEFT / STRIDE_W;
    const int64 from = ((int64(at.n) * P + i - (kLiveH - 1)) * Q + j - (kLiveW - 1)) * C + at.c;
    const int64 to = ((int64(at.n) * H + i * STRIDE_H - PAD_TOP) * W + j * STRIDE_W - PAD_LEFT) * C + at.c;
    Window windows[kLiveH][kLiveW];
#pragma unroll
    for (int k = 0; k < kLiveH; ++k)
#pragma unroll
      for (int l = 0; l < kLiveW; ++l) {
        const int p = i - (kLiveH - 1) + k, q = j - (kLiveW - 1) + l;
        windows[k][l] = {};
        if (p >= 0 && p < P && q >= 0 && q < Q)
          windows[k][l].load(dy, index, from + int64(k * Q + l) * C, p, q);
      }
#pragma unroll
    for (int a = 0; a < STRIDE_H; ++a)
#pragma unroll
      for (int b = 0; b < STRIDE_W; ++b) {
        const int h = i * STRIDE_H - PAD_TOP + a, w = j * STRIDE_W - PAD_LEFT + b;
        if (h < 0 || h >= H || w < 0 || w >= W) continue;
        float sum[V] = {};
#pragma unroll
        for (int k = 0; k < kLiveH; ++k)
#pragma unroll
          for (int l = 0; l < kLiveW; ++l) {
            const int r = (kLiveH - 1 - k) * STRIDE_H + a, s = (kLiveW - 1 - l) * STRIDE_W + b;
            if (r > kReachH || s > kReachW || r % DILATION_H != 0 || s % DILATION_W != 0) continue;
            windows[k][l].add_to(sum, r / DILATION_H, s / DILATION_W);
          }
        Vec<DX, V>::pack(sum).store(dx + (to + int64(a * W + b) * C));
      }
  }
}

#else

constexpr int kAtOnce = 4;  // windows of a row whose gradients are read together

// Windows along one axis that cover position i: first .. last.
__device__ void covering(int i, int kernel, int stride, int dilation, int before, int outputs, int& first, int& last) {
  const int reach = (kernel - 1) * dilation;
  const int low = i + before - reach;
  first = low <= 0 ? 0 : (low + stride - 1) / stride;
  last = (i + before) / stride;
  if (last > outputs - 1) last = outputs - 1;
}

__device__ void gather(const DY* dy, const I* index, DX* dx) {
  for (index_t rest = index_t(blockIdx.x) * 256 + threadIdx.x; rest < NUMBERS; rest += index_t(gridDim.x) * 256) {
    const Place at(index_t(NUMBERS) - 1 - rest, W, H);
    float sum[V] = {};
    int p0, p1, q0, q1;
    covering(at.h, KERNEL_H, STRIDE_H, DILATION_H, PAD_TOP, P, p0, p1);
    covering(at.w, KERNEL_W, STRIDE_W, DILATION_W, PAD_LEFT, Q, q0, q1);
#pragma unroll 1
    for (int p = p0; p <= p1; ++p) {
      const int r = at.h + PAD_TOP - p * STRIDE_H;
      if (r % DILATION_H != 0) continue;
      const index_t row = (index_t(at.n) * P + p) * Q;
#pragma unroll 1
      for (int q = q0; q <= q1; q += kAtOnce) {
        Window windows[kAtOnce];
#pragma unroll
        for (int l = 0; l < kAtOnce; ++l) {
          windows[l] = {};
          if (q + l <= q1) windows[l].load(dy, index, (row + q + l) * C + at.c, p, q + l);
        }
#pragma unroll
        for (int l = 0; l < kAtOnce; ++l) {
          const int s = at.w + PAD_LEFT - (q + l) * STRIDE_W;
          if (q + l > q1 || s % DILATION_W != 0) continue;
          windows[l].add_to(sum, r / DILATION_H, s / DILATION_W);
        }
      }
    }
    Vec<DX, V>::pack(sum).store(dx + (index_t(NUMBERS) - 1 - rest) * V);
  }
}
#endif

#if AVERAGE
extern "C" __global__ void __launch_bounds__(256, 2) average_pool_backward(const DY* dy, DX* dx) {
  gather(dy, nullptr, dx);
}
#else
extern "C" __global__ void __launch_bounds__(256, 2) max_pool_backward(const DY* dy, const I* index, DX* dx) {
  gather(dy, index, dx);
}
#endif
#endif
