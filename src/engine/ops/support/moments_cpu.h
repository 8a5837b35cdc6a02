// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace ren {

// Mean and sum of squared deviations of `count` values. Merging two of them (Chan, Golub,
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979)
// never subtracts large squares from each other, so a mean of 1000 with a deviation of 1 is safe.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  void merge(const Moments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, distance = other.mean - mean;
    mean += distance * other.count / total;
    squares += other.squares + distance * distance * count * other.count / total;
    count = total;
  }
  double variance() const { return squares / count; }
};

// Merges rows [begin, end) of a row-major matrix into moments[0 .. columns), one a column.
// `stride` is the distance of rows in elements. Reads memory once.
void accumulate_columns(const void* x, DType type, int64_t begin, int64_t end, int64_t stride,
                        int64_t columns, Moments* moments);

// The moments of `count` consecutive values.
Moments moments_of_row(const float* x, int64_t count);

}  // namespace ren
