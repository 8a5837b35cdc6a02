// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/rng.h"
#include "engine/pointwise/expression.h"

namespace ren {

// y[i] = prim(x[i]) for exp, log, tanh, erf, sigmoid and softplus; x == y is fine. Branch-free
// polynomials, so that compilers vectorise them: within 3 ULP of the true value (tests measure
// it), subnormal results of exp included; NaN, infinities and poles as in libm.
void vector_math(Prim prim, const float* x, float* y, int count);

// Its variants, of which the processor's best is taken; those that it can run, for tests.
struct VectorMathVariant {
  const char* name;
  void (*run)(Prim prim, const float* x, float* y, int count);
};
std::vector<VectorMathVariant> vector_math_variants();

// out[i] = uniform_at(element first + i) of one sample and stream.
void vector_uniform(const RandomPoint& first, uint32_t stream, float* out, int count);

}  // namespace ren
