// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ops/op.h"
#include "engine/ops/pointwise/expression_attributes.h"

namespace ren {

enum class ReduceKind : uint8_t { sum, max };

// y_k = sum or max of expression_k over the dimensions that are 1 in the target but not in the
// broadcast shape of the operands. Targets in use: [1,1,1,C], [N,1,1,C], [N,H,W,1], [N,1,1,1],
// [1,1,1,1]. A mean is a sum whose expression ends in a factor. Inputs as for pointwise.
// Accumulates in FP32 at least; results are FP32. The last `stored` outputs of the expression are
// not reduced but written in full, in passing: what the sums read and others read again.
struct ReduceAttributes final : ExpressionAttributes {
  ReduceAttributes(Expression e, ReduceKind k, bool keep_n, bool keep_h, bool keep_w, bool keep_c,
                   std::vector<DType> stored_types = {})
      : ExpressionAttributes(std::move(e)),
        kind(k),
        n(keep_n),
        h(keep_h),
        w(keep_w),
        c(keep_c),
        stored(std::move(stored_types)) {}
  ReduceKind kind;
  bool n, h, w, c;            // which dimensions stay
  std::vector<DType> stored;  // types of the outputs that are written in full; on GPUs only
  size_t reduced() const { return expression.outputs.size() - stored.size(); }
  std::string text() const override;
};

}  // namespace ren
