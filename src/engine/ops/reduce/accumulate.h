// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/ops/reduce/reduce.h"

namespace ren {

// Reductions of one block (at most BlockProgram::kBlock floats). Sums are FP32 within a block, in
// lanes of at most 16 additions each, and double across blocks. A maximum that met a NaN is NaN.

// sums[j] += v[j] + v[j + width] + ..., for all j < width; count is no multiple of width
// necessarily.
void accumulate_columns(ReduceKind kind, const float* v, int count, int width, double* sums);

// The sum or maximum of all of v.
double accumulate_row(ReduceKind kind, const float* v, int count);

double combine(ReduceKind kind, double a, double b);
double identity_of(ReduceKind kind);

}  // namespace ren
