// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/rows_cpu.h"

#include <limits>

#include "engine/ops/support/vector_cpu.h"
#include "engine/pointwise/vector_math.h"

namespace ren {
namespace {

constexpr int64_t kBlock = 512;

REN_CLONES void subtract(const float* x, float shift, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] - shift;
}

REN_CLONES double sum_of(const float* x, int64_t count) {
  Doubles lanes{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    HalfFloats v;
    REN_LOAD(v, x + i);
    lanes += __builtin_convertvector(v, Doubles);
  }
  double sum = 0;
  for (; i < count; ++i) sum += double(x[i]);
  for (int64_t k = 0; k < 8; ++k) sum += lanes[k];
  return sum;
}

}  // namespace

REN_CLONES float largest_of(const float* x, int64_t count) {
  const float least = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  for (float& lane : lanes) lane = least;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  for (; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  float largest = lanes[0];
  for (int64_t k = 1; k < kLanes; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
  return largest;
}

double exponentials(const float* x, float shift, int64_t count, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    subtract(x + i, shift, n, y + i);
    vector_math(Prim::exp, y + i, y + i, int(n));
    sum += sum_of(y + i, n);
  }
  return sum;
}

}  // namespace ren
