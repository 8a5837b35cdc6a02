// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/activations.h"

#include <cmath>
#include <numbers>

#include "engine/base/status.h"

namespace ren {

const std::vector<ActivationInfo>& activations() {
  static const std::vector<ActivationInfo> all{
#define REN_ACTIVATION(name, alpha, beta, expression) {#name, alpha, beta},
#include "engine/pointwise/activations.def"
#undef REN_ACTIVATION
  };
  return all;
}

const ActivationInfo* find_activation(std::string_view name) {
  for (const ActivationInfo& info : activations())
    if (name == info.name) return &info;
  return nullptr;
}

Value apply_activation(ExpressionBuilder& e, std::string_view name, Value x, [[maybe_unused]] double alpha,
                       [[maybe_unused]] double beta) {
  const auto c = [&](double v) { return e.constant(v); };
#define REN_ACTIVATION(activation, default_alpha, default_beta, expression) \
  if (name == #activation) return expression;
#include "engine/pointwise/activations.def"
#undef REN_ACTIVATION
  fail(StatusCode::unsupported, "{} is no activation", name);
}

Expression activation(std::string_view name, double alpha, double beta) {
  ExpressionBuilder e;
  const Value y = apply_activation(e, name, e.input(0), alpha, beta);
  return e.finish({y}, 1);
}

Expression activation(std::string_view name) {
  const ActivationInfo* info = find_activation(name);
  if (!info) fail(StatusCode::unsupported, "{} is no activation", name);
  return activation(name, info->alpha, info->beta);
}

Expression prelu() {
  ExpressionBuilder e;
  const Value x = e.input(0), slope = e.input(1);
  return e.finish({e.select(e.less(e.constant(0), x), x, e.mul(x, slope))}, 2);
}

Expression clip(double low, double high) {
  ExpressionBuilder e;
  Value y = e.input(0);
  if (!std::isinf(low)) y = e.maximum(y, e.constant(low));
  if (!std::isinf(high)) y = e.minimum(y, e.constant(high));
  return e.finish({y}, 1);
}

}  // namespace ren
