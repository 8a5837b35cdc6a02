// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"
#include "engine/pointwise/expression.h"

namespace ren {

enum class ReduceKind : uint8_t { sum, max };

// y_k = sum or max of expression_k over the dimensions that are 1 in the target but not in the
// broadcast shape of the operands. Targets in use: [1,1,1,C], [N,1,1,C], [N,H,W,1], [N,1,1,1],
// [1,1,1,1]. A mean is a sum whose expression ends in a factor. Inputs as for pointwise.
// Accumulates in FP32 pairs at least; results are FP32.
struct ReduceAttributes final : Attributes {
  ReduceAttributes(Expression e, ReduceKind k, bool keep_n, bool keep_h, bool keep_w, bool keep_c)
      : expression(std::move(e)), kind(k), n(keep_n), h(keep_h), w(keep_w), c(keep_c) {}
  Expression expression;
  ReduceKind kind;
  bool n, h, w, c;  // which dimensions stay
  std::string text() const override;
};

}  // namespace ren
