// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/rows_cpu.h"

#include <limits>

#include "engine/pointwise/vector_math.h"

namespace ren {
namespace {

constexpr int64_t kBlock = 512;

REN_CLONES void subtract(const float* x, float shift, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] - shift;
}

REN_CLONES double sum_of(const float* x, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t k = 0; k < 8; ++k) lanes[k] += double(x[i + k]);
  for (; i < count; ++i) lanes[0] += double(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

REN_CLONES float largest_of(const float* x, int64_t count) {
  float lanes[16];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int64_t k = 0; k < 16; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  for (; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  float largest = lanes[0];
  for (int64_t k = 1; k < 16; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
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
