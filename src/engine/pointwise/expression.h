// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/rng.h"

namespace ren {

// The primitives of pointwise expressions. Comparisons give 1 or 0; select(c, a, b) is
// a where c != 0, else b (and never mixes a NaN of the branch not taken into the result).
enum class Prim : uint8_t {
  // clang-format off
  input,      // operand number `index`
  constant,   // `value`
  uniform,    // [0,1): Philox of the random state, stream `index`, the element (or the sample, value != 0)
  add, sub, mul, div, max, min,
  neg, abs, exp, log, sqrt, rsqrt, reciprocal, tanh, erf, sigmoid, softplus,
  less, less_equal, equal,
  select
  // clang-format on
};
const char* name_of(Prim prim);
int arity(Prim prim);
// What a primitive computes, in double; operands that it lacks are ignored.
double apply_prim(Prim prim, double a, double b, double c);

struct ExprNode {
  Prim prim = Prim::constant;
  int32_t a = -1, b = -1, c = -1;  // earlier nodes of the same expression
  int32_t index = 0;
  double value = 0;
  bool operator==(const ExprNode&) const = default;
};

// A DAG over inputs, in evaluation order, with one or more outputs. Immutable once built;
// equal subexpressions are one node and constants are folded (ExpressionBuilder).
struct Expression {
  std::vector<ExprNode> nodes;
  std::vector<int32_t> outputs;  // node numbers
  int32_t inputs = 0;            // operands that the node binds (one unread gives its shape alone)

  bool uses_random() const;
  // Stable text: "y0 = max(add(x0, x1), 0)".
  std::string text() const;
  bool operator==(const Expression&) const = default;
};

// Where a random number is drawn: the state is Scalar::random_state.
struct RandomPoint {
  Philox::Key key{};
  uint32_t step = 0;
  uint64_t sample = 0;   // global index of the sample
  uint64_t element = 0;  // within the sample, NHWC order, logical (unpadded) extents
};
// The number that Prim::uniform gives; the one definition, which every backend reproduces (spelt
// out in expression.cpp). `random_counter` is the counter of the block that it comes from.
Philox::Counter random_counter(const RandomPoint& point, uint32_t stream, bool per_sample);
float uniform_at(const RandomPoint& point, uint32_t stream, bool per_sample);

// The oracle: every output at one element, in double.
void evaluate(const Expression& expression, std::span<const double> inputs, const RandomPoint& point,
              std::span<double> outputs);

using Value = int32_t;  // a node number while building

class ExpressionBuilder {
 public:
  Value input(int index);
  Value constant(double value);
  Value uniform(uint32_t stream, bool per_sample);
  // Folds constants and identities (x*1, x+0 ...), merges equals.
  Value apply(Prim prim, Value a, Value b = -1, Value c = -1);
  // Copies another expression in, its inputs replaced by `arguments`; returns its outputs.
  std::vector<Value> inline_expression(const Expression& other, std::span<const Value> arguments);
  // Finishes with these outputs: drops what is unused. Inputs keep their numbers; `inputs` says how many.
  Expression finish(std::vector<Value> outputs, int inputs) const;

  Value add(Value a, Value b) { return apply(Prim::add, a, b); }
  Value sub(Value a, Value b) { return apply(Prim::sub, a, b); }
  Value mul(Value a, Value b) { return apply(Prim::mul, a, b); }
  Value div(Value a, Value b) { return apply(Prim::div, a, b); }
  Value maximum(Value a, Value b) { return apply(Prim::max, a, b); }
  Value minimum(Value a, Value b) { return apply(Prim::min, a, b); }
  Value select(Value c, Value a, Value b) { return apply(Prim::select, c, a, b); }
  Value less(Value a, Value b) { return apply(Prim::less, a, b); }

 private:
  Value append(const ExprNode& node);  // or the equal one that is there
  std::vector<ExprNode> nodes_;
};

// Drops inputs that no node uses and renumbers the rest; `kept` receives the old numbers.
Expression compact_inputs(const Expression& expression, std::vector<int32_t>& kept);

// The same expression with some of its outputs, in the order given; inputs keep their numbers.
Expression select_outputs(const Expression& expression, std::span<const int> wanted);

// Whether an output is this constant, whatever the inputs.
bool is_constant(const Expression& expression, size_t output, double value);

// Symbolic derivatives (reverse mode). Given y = expression(x0..xn-1), returns an expression
// over (x0..xn-1, y0..ym-1, dy0..dym-1) whose outputs are dx_i for each i in `wanted`. Forms
// are numerically stable; where the output makes a cheaper form (relu, sigmoid, tanh, exp,
// sqrt) it refers to y and not to x.
Expression differentiate(const Expression& expression, std::span<const int> wanted);

}  // namespace ren
