// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/pointwise/expression.h"

namespace ren {

// How an operand of fewer pixels is read, [N, ceil(H/h), ceil(W/w), C] for a node of [N,H,W,C]: its pixels
// lie at multiples of h and w, and between them it is zero.
struct Spread {
  int64_t h = 1, w = 1;
  bool any() const { return h != 1 || w != 1; }
};

// What pointwise and reduce share.
struct ExpressionAttributes : Attributes {
  explicit ExpressionAttributes(Expression e) : expression(std::move(e)) {}
  Expression expression;
  std::vector<Spread> spreads;  // by operand; empty: none is spread. On GPUs only

  Spread spread(size_t operand) const { return operand < spreads.size() ? spreads[operand] : Spread(); }
  // "spread x1 by 2x2: ", or nothing
  std::string spread_text() const;
};

}  // namespace ren
