// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>

#include "engine/base/half.h"
#include "engine/base/status.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/pool/window.h"
#include "engine/ops/support/kernel.h"
#include "engine/ops/support/vector_cpu.h"

namespace ren {
namespace {

constexpr int64_t kTile = 256;  // channels at a time; everything of a tile stays in level-1 cache

// What the four kernels share. x is the larger side (the input or its gradient), y the
// pooled one.
struct Pooling {
  PoolAttributes a;
  Shape xs, ys;
  DType x_type, y_type;
  PoolAxis h, w;
  std::byte *x, *y, *index;
  bool wide_index;

  int64_t x_at(int64_t n, int64_t i, int64_t j) const { return ((n * xs.h + i) * xs.w + j) * xs.c; }
  int64_t y_at(int64_t n, int64_t p, int64_t q) const { return ((n * ys.h + p) * ys.w + q) * ys.c; }
};

Pooling pooling(const BindContext& context, const Tensor& x, const Tensor& y) {
  const auto& a = context.node.as<PoolAttributes>();
  Pooling p{a,
            x.shape,
            y.shape,
            x.dtype,
            y.dtype,
            pool_height(a, x.shape, y.shape),
            pool_width(a, x.shape, y.shape)};
  p.wide_index = pool_index_type(a) == DType::i32;
  return p;
}

// `count` values at element `at`, as floats: in place, or converted into `buffer`.
const float* load(const std::byte* base, DType type, int64_t at, int64_t count, float* buffer) {
  if (type == DType::f32) return reinterpret_cast<const float*>(base) + at;
  convert_to_f32(base + at * 2, type, buffer, size_t(count));
  return buffer;
}

void store(const float* values, std::byte* base, DType type, int64_t at, int64_t count) {
  convert_from_f32(values, type, base + at * int64_t(size_of(type)), size_t(count));
}

inline REN_INLINE void take_larger(const float* __restrict__ x, int32_t position, int64_t count,
                                   float* __restrict__ best, int32_t* __restrict__ where) {
  for (int64_t c = 0; c < count; ++c) {
    const float v = x[c], b = best[c];
    const bool take = (v > b) | (v != v);
    best[c] = take ? v : b;
    where[c] = take ? position : where[c];
  }
}

// dx += dy where the window took this position.
template <typename Index>
inline REN_INLINE void add_where(const float* __restrict__ dy, const Index* __restrict__ where,
                                 int32_t position, int64_t count, float* __restrict__ dx) {
  for (int64_t c = 0; c < count; ++c) dx[c] += int32_t(where[c]) == position ? dy[c] : 0.0f;
}

inline REN_INLINE void add_scaled(const float* __restrict__ x, float factor, int64_t count,
                                  float* __restrict__ sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += factor * x[c];
}

inline REN_INLINE void narrow_index(const int32_t* __restrict__ where, int64_t count,
                                    uint8_t* __restrict__ index) {
  for (int64_t c = 0; c < count; ++c) index[c] = uint8_t(where[c]);
}

inline REN_INLINE void max_tile(const Pooling& k, int64_t n, int64_t p, int64_t q, int64_t c, int64_t count) {
  float best[kTile], buffer[kTile];
  int32_t where[kTile];
  const int64_t r0 = k.h.first(p), r1 = k.h.last(p), s0 = k.w.first(q), s1 = k.w.last(q);
  std::fill_n(best, count, -std::numeric_limits<float>::infinity());
  std::fill_n(where, count, int32_t(r0 < r1 && s0 < s1 ? r0 * k.a.kernel_w + s0 : 0));
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t at = k.x_at(n, k.h.start(p) + r * k.a.dilation_h, k.w.start(q) + s * k.a.dilation_w) + c;
      take_larger(load(k.x, k.x_type, at, count, buffer), int32_t(r * k.a.kernel_w + s), count, best, where);
    }
  const int64_t out = k.y_at(n, p, q) + c;
  store(best, k.y, k.y_type, out, count);
  if (k.index == nullptr) return;
  if (k.wide_index) {
    std::memcpy(reinterpret_cast<int32_t*>(k.index) + out, where, size_t(count) * sizeof(int32_t));
  } else {
    narrow_index(where, count, reinterpret_cast<uint8_t*>(k.index) + out);
  }
}

// Each input position looks at the windows over it, so nothing is written twice and no order
// of threads matters.
template <typename WindowBody>
inline REN_INLINE void for_each_window(const Pooling& k, int64_t i, int64_t j, const WindowBody& body) {
  for (int64_t p = k.h.first_window(i); p < k.h.last_window(i); ++p) {
    const int64_t r = k.h.position_in(p, i);
    if (r < 0) continue;
    for (int64_t q = k.w.first_window(j); q < k.w.last_window(j); ++q) {
      const int64_t s = k.w.position_in(q, j);
      if (s >= 0) body(p, q, r * k.a.kernel_w + s);
    }
  }
}

inline REN_INLINE void max_backward_tile(const Pooling& k, int64_t n, int64_t i, int64_t j, int64_t c,
                                         int64_t count) {
  float dx[kTile] = {}, buffer[kTile];
  for_each_window(k, i, j, [&](int64_t p, int64_t q, int64_t position) REN_INLINE {
    const int64_t at = k.y_at(n, p, q) + c;
    const float* dy = load(k.y, k.y_type, at, count, buffer);
    if (k.wide_index) {
      add_where(dy, reinterpret_cast<const int32_t*>(k.index) + at, int32_t(position), count, dx);
    } else {
      add_where(dy, reinterpret_cast<const uint8_t*>(k.index) + at, int32_t(position), count, dx);
    }
  });
  store(dx, k.x, k.x_type, k.x_at(n, i, j) + c, count);
}

float share_of(const Pooling& k, int64_t p, int64_t q) {
  return 1.0f / float(k.h.counted(p, k.a.count_include_pad) * k.w.counted(q, k.a.count_include_pad));
}

inline REN_INLINE void average_tile(const Pooling& k, int64_t n, int64_t p, int64_t q, int64_t c,
                                    int64_t count) {
  float sum[kTile] = {}, buffer[kTile];
  const float share = share_of(k, p, q);
  for (int64_t r = k.h.first(p); r < k.h.last(p); ++r)
    for (int64_t s = k.w.first(q); s < k.w.last(q); ++s) {
      const int64_t at = k.x_at(n, k.h.start(p) + r * k.a.dilation_h, k.w.start(q) + s * k.a.dilation_w) + c;
      add_scaled(load(k.x, k.x_type, at, count, buffer), share, count, sum);
    }
  store(sum, k.y, k.y_type, k.y_at(n, p, q) + c, count);
}

inline REN_INLINE void average_backward_tile(const Pooling& k, int64_t n, int64_t i, int64_t j, int64_t c,
                                             int64_t count) {
  float dx[kTile] = {}, buffer[kTile];
  for_each_window(k, i, j, [&](int64_t p, int64_t q, int64_t) REN_INLINE {
    add_scaled(load(k.y, k.y_type, k.y_at(n, p, q) + c, count, buffer), share_of(k, p, q), count, dx);
  });
  store(dx, k.x, k.x_type, k.x_at(n, i, j) + c, count);
}

// All tiles of rows [begin, end) of one side.
template <typename Tile>
inline REN_INLINE void for_each_tile(const Shape& side, int64_t begin, int64_t end, const Tile& tile) {
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < side.w; ++column)
      for (int64_t c = 0; c < side.c; c += kTile)
        tile(row / side.h, row % side.h, column, c, std::min(kTile, side.c - c));
}

// One function for each kernel, so that all of its inner loops are compiled per instruction set.
#define REN_POOL_ROWS(name, side)                                                 \
  REN_CLONES void name##_rows(const Pooling& k, int64_t begin, int64_t end) {     \
    for_each_tile(k.side, begin, end,                                             \
                  [&k](int64_t n, int64_t i, int64_t j, int64_t c, int64_t count) \
                      REN_INLINE { name##_tile(k, n, i, j, c, count); });         \
  }
REN_POOL_ROWS(max, ys)
REN_POOL_ROWS(max_backward, xs)
REN_POOL_ROWS(average, ys)
REN_POOL_ROWS(average_backward, xs)
#undef REN_POOL_ROWS

using Rows = void (*)(const Pooling&, int64_t, int64_t);

std::unique_ptr<Kernel> kernel_of(const Pooling& k, Rows rows, const Shape& side) {
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / (side.w * side.c)), count = side.n * side.h;
  return make_kernel([k, rows, grain, count] {
    parallel_for(count, grain, [&](int, int64_t begin, int64_t end) { rows(k, begin, end); });
  });
}

std::unique_ptr<Kernel> bind_max(const BindContext& context) {
  Pooling k = pooling(context, input_tensor(context, 0), output_tensor(context, 0));
  k.x = context.inputs[0];
  k.y = context.outputs[0];
  k.index = output_as<std::byte>(context, 1);
  return kernel_of(k, max_rows, k.ys);
}

std::unique_ptr<Kernel> bind_max_backward(const BindContext& context) {
  Pooling k = pooling(context, output_tensor(context, 0), input_tensor(context, 0));
  k.y = context.inputs[0];
  k.index = context.inputs[1];
  k.x = context.outputs[0];
  return kernel_of(k, max_backward_rows, k.xs);
}

std::unique_ptr<Kernel> bind_average(const BindContext& context) {
  Pooling k = pooling(context, input_tensor(context, 0), output_tensor(context, 0));
  k.x = context.inputs[0];
  k.y = context.outputs[0];
  return kernel_of(k, average_rows, k.ys);
}

std::unique_ptr<Kernel> bind_average_backward(const BindContext& context) {
  Pooling k = pooling(context, output_tensor(context, 0), input_tensor(context, 0));
  k.y = context.inputs[0];
  k.x = context.outputs[0];
  return kernel_of(k, average_backward_rows, k.xs);
}

NodeChoice prepare_max(const PrepareContext& context) {
  if (context.node.as<PoolAttributes>().computes())
    fail(StatusCode::unsupported, "a pool that computes what it pools has no kernel on CPUs");
  return prepare_own(context);
}

}  // namespace

const OpBackend& max_pool_cpu() {
  static const OpBackend backend{prepare_max, bind_max};
  return backend;
}

const OpBackend& max_pool_backward_cpu() {
  static const OpBackend backend{prepare_own, bind_max_backward};
  return backend;
}

const OpBackend& average_pool_cpu() {
  static const OpBackend backend{prepare_own, bind_average};
  return backend;
}

const OpBackend& average_pool_backward_cpu() {
  static const OpBackend backend{prepare_own, bind_average_backward};
  return backend;
}

}  // namespace ren
