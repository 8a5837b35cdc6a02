// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/pointwise/expression.h"

namespace ren {

// How a node of [N,H,W,C] reads an operand whose tensor lies otherwise in memory. Spread: the tensor has
// fewer pixels, [N, ceil(H/h), ceil(W/w), C]; they lie at multiples of h and w, and between them it is zero.
// A window: of its channels `count` are read, from `first` on.
struct OperandView {
  int64_t h = 1, w = 1;
  int64_t first = 0, count = 0;  // count == 0: all channels
  bool is_spread() const { return h != 1 || w != 1; }
  bool is_window() const { return count != 0; }
  bool any() const { return is_spread() || is_window(); }
};

// What pointwise and reduce share.
struct ExpressionAttributes : Attributes {
  explicit ExpressionAttributes(Expression e) : expression(std::move(e)) {}
  Expression expression;
  std::vector<OperandView> views;  // by operand; empty: all are read as they lie. On GPUs only

  OperandView view(size_t operand) const { return operand < views.size() ? views[operand] : OperandView(); }
  // "spread x1 by 2x2: x2 from channel 32 on: ", or nothing
  std::string view_text() const;
};

}  // namespace ren
