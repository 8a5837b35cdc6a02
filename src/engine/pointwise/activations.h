// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "engine/pointwise/expression.h"

namespace ren {

// ONNX's pointwise activations. Names are ONNX's op types; "GeluTanh" is Gelu with
// approximate = "tanh", and Selu's gamma is `beta`.
struct ActivationInfo {
  const char* name;
  double alpha, beta;  // defaults of the attributes; 0 where the op has none
};
const std::vector<ActivationInfo>& activations();
const ActivationInfo* find_activation(std::string_view name);  // nullptr: not one of them

// y0 = activation(x0); throws unsupported when the name is none of these.
Expression activation(std::string_view name, double alpha, double beta);
Expression activation(std::string_view name);  // with the attributes' defaults

// Appends it to an expression under construction.
Value apply_activation(ExpressionBuilder& builder, std::string_view name, Value x, double alpha, double beta);

// y0 = x0 where x0 > 0, else x0 * x1 (the slope, broadcast like any operand).
Expression prelu();

// y0 = min(max(x0, low), high); an infinite bound is left out.
Expression clip(double low, double high);

}  // namespace ren
