// SPDX-License-Identifier: Apache-2.0
#pragma GCC optimize("O3,no-math-errno,no-trapping-math")
#include <algorithm>
#include <limits>

#include "engine/base/vector_clones.h"
#include "engine/ops/reduce/accumulate.h"

namespace ren {
namespace {

constexpr int kLanes = 64;

struct Sum {
  static constexpr float kStart = 0.0f;
  template <typename T>
  [[gnu::always_inline]] static T join(T a, T b) {
    return a + b;
  }
};
struct Max {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  template <typename T>
  [[gnu::always_inline]] static T join(T a, T b) {
    return (b > a) | (b != b) ? b : a;
  }
};

// All lanes, `rows` rows: the partial results stay in registers.
template <typename Kind>
[[gnu::always_inline]] inline void full_lanes(const float* v, int rows, int width, double* sums) {
  float partial[kLanes];
  for (int j = 0; j < kLanes; ++j) partial[j] = Kind::kStart;
  for (; rows > 0; --rows, v += width)
    for (int j = 0; j < kLanes; ++j) partial[j] = Kind::join(partial[j], v[j]);
  for (int j = 0; j < kLanes; ++j) sums[j] = Kind::join(sums[j], double(partial[j]));
}

template <typename Kind>
[[gnu::always_inline]] inline void some_lanes(const float* v, int count, int lanes, int width, double* sums) {
  float partial[kLanes];
  for (int j = 0; j < lanes; ++j) partial[j] = Kind::kStart;
  for (int base = 0; base < count; base += width) {
    const int n = std::min(lanes, count - base);
    for (int j = 0; j < n; ++j) partial[j] = Kind::join(partial[j], v[base + j]);
  }
  for (int j = 0; j < lanes; ++j) sums[j] = Kind::join(sums[j], double(partial[j]));
}

template <typename Kind>
[[gnu::always_inline]] inline void columns(const float* v, int count, int width, double* sums) {
  int first = 0;
  if (count % width == 0)
    for (; first + kLanes <= width; first += kLanes)
      full_lanes<Kind>(v + first, count / width, width, sums + first);
  for (; first < width; first += kLanes)
    some_lanes<Kind>(v + first, count - first, std::min(kLanes, width - first), width, sums + first);
}

template <typename Kind>
[[gnu::always_inline]] inline double row(const float* v, int count) {
  float partial[kLanes];
  for (int j = 0; j < kLanes; ++j) partial[j] = Kind::kStart;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int j = 0; j < kLanes; ++j) partial[j] = Kind::join(partial[j], v[i + j]);
  for (int j = 0; i + j < count; ++j) partial[j] = Kind::join(partial[j], v[i + j]);
  double result = double(Kind::kStart);
  for (int j = 0; j < std::min(kLanes, count); ++j) result = Kind::join(result, double(partial[j]));
  return result;
}

REN_CLONES void sum_columns(const float* v, int count, int width, double* sums) {
  columns<Sum>(v, count, width, sums);
}
REN_CLONES void max_columns(const float* v, int count, int width, double* sums) {
  columns<Max>(v, count, width, sums);
}
REN_CLONES double sum_row(const float* v, int count) { return row<Sum>(v, count); }
REN_CLONES double max_row(const float* v, int count) { return row<Max>(v, count); }

}  // namespace

void accumulate_columns(ReduceKind kind, const float* v, int count, int width, double* sums) {
  kind == ReduceKind::sum ? sum_columns(v, count, width, sums) : max_columns(v, count, width, sums);
}

double accumulate_row(ReduceKind kind, const float* v, int count) {
  return kind == ReduceKind::sum ? sum_row(v, count) : max_row(v, count);
}

double combine(ReduceKind kind, double a, double b) {
  return kind == ReduceKind::sum ? Sum::join(a, b) : Max::join(a, b);
}

double identity_of(ReduceKind kind) { return kind == ReduceKind::sum ? Sum::kStart : Max::kStart; }

}  // namespace ren
