// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pointwise/expression.h"

namespace ren {

// An expression as CUDA C++ text; no CUDA header is needed to make it.
struct CudaExpression {
  // Declarations "const float PREFIX0 = ...;", one line each; to be placed where `inputs` are in
  // scope. Empty lines of its own it has none, and it names nothing but PREFIX<number>.
  std::string statements;
  // One expression text (a name or a literal) for each output of the Expression.
  std::vector<std::string> outputs;
};

// `inputs`: the text of each operand, a float local or literal, one for every input of the
// expression. `random_call`: what a random number is written as; it is followed by
// "STREAMu, false)" or "STREAMu, true)" (per sample), so pass an opened call with the arguments
// that say where: "ren_uniform(state, sample, element, ". `prefix` begins the names of the locals.
// All arithmetic is float; exp, log, tanh, erf and log1p are CUDA's accurate forms (1 to 2 ULP),
// never the fast intrinsics. max and min propagate NaN.
CudaExpression cuda_expression(const Expression& expression, std::span<const std::string> inputs,
                               std::string_view random_call = {}, std::string_view prefix = "t");

// Device functions that the statements call, to be placed once before the kernel, outside of any
// namespace and function. It needs no header. Defines
//   float ren_max(a, b), ren_min(a, b), ren_sigmoid(x), ren_softplus(x)
//   uint4 ren_philox(uint4 counter, uint2 key)
//   float ren_uniform(const int* random_state, unsigned sample, unsigned long long element,
//                     unsigned stream, bool per_sample)
// ren_uniform gives uniform_at's bits: random_state is Scalar::random_state (key 0, key 1, step,
// first sample), `sample` the row in this batch, `element` its place in the sample (NHWC, logical
// extents).
std::string_view cuda_prelude();

}  // namespace ren
