// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/status.h"
#include "engine/pointwise/expression.h"

namespace ren {
namespace {

bool same(const ExprNode& x, const ExprNode& y) {
  // Bits, not ==: 0 and -0 are different constants, and a NaN is equal to itself.
  return x.prim == y.prim && x.a == y.a && x.b == y.b && x.c == y.c && x.index == y.index &&
         std::bit_cast<uint64_t>(x.value) == std::bit_cast<uint64_t>(y.value);
}

bool is_commutative(Prim prim) {
  return prim == Prim::add || prim == Prim::mul || prim == Prim::max || prim == Prim::min ||
         prim == Prim::equal;
}

// 1/x is exact, so that x/c and x*(1/c) round alike.
bool is_power_of_two(double x) {
  int exponent = 0;
  return std::fabs(std::frexp(x, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

// The identities. Each holds bit for bit for finite operands, up to the sign of a zero; x*0
// is no 0 (infinity, NaN) and x-x neither, so they stay.
class Simplifier {
 public:
  Simplifier(const std::vector<ExprNode>& nodes, ExpressionBuilder& builder) : nodes_(nodes), e_(builder) {}

  // -1: nothing to simplify.
  Value simplify(Prim prim, Value a, Value b, Value c) {
    // clang-format off
    switch (prim) {
      case Prim::add: return add(a, b);
      case Prim::sub: return sub(a, b);
      case Prim::mul: return mul(a, b);
      case Prim::div: return div(a, b);
      case Prim::neg: return is(a, Prim::neg) ? at(a).a : -1;
      case Prim::abs: return is(a, Prim::abs) ? a : is(a, Prim::neg) ? e_.apply(Prim::abs, at(a).a) : -1;
      case Prim::max:
      case Prim::min: return extremum(prim, a, b);
      case Prim::select: return select(a, b, c);
      default: return -1;
    }
    // clang-format on
  }

 private:
  const ExprNode& at(Value v) const { return nodes_[size_t(v)]; }
  bool is(Value v, Prim prim) const { return at(v).prim == prim; }
  bool is_constant(Value v) const { return is(v, Prim::constant); }
  bool is_constant(Value v, double value) const { return is_constant(v) && at(v).value == value; }

  Value add(Value a, Value b) {
    if (is_constant(b, 0)) return a;
    if (is(b, Prim::neg)) return e_.sub(a, at(b).a);
    if (is(a, Prim::neg)) return e_.sub(b, at(a).a);
    return -1;
  }
  Value sub(Value a, Value b) {
    if (is_constant(b, 0)) return a;
    if (is_constant(a, 0)) return e_.apply(Prim::neg, b);
    if (is(b, Prim::neg)) return e_.add(a, at(b).a);
    return -1;
  }
  Value mul(Value a, Value b) {
    if (is_constant(b, 1)) return a;
    if (is_constant(b, -1)) return e_.apply(Prim::neg, a);
    if (is(a, Prim::neg) && is(b, Prim::neg)) return e_.mul(at(a).a, at(b).a);
    if (is(a, Prim::neg) && is_constant(b)) return e_.mul(at(a).a, e_.constant(-at(b).value));
    return -1;
  }
  Value div(Value a, Value b) {
    if (is_constant(b, 1)) return a;
    if (is_constant(b) && is_power_of_two(at(b).value)) return e_.mul(a, e_.constant(1 / at(b).value));
    if (is_constant(a, 1)) return e_.apply(Prim::reciprocal, b);
    return -1;
  }
  Value extremum(Prim prim, Value a, Value b) {
    if (a == b) return a;
    if (is_constant(b) && std::isnan(at(b).value)) return b;
    if (is(a, prim) && is_constant(b) && is_constant(at(a).b)) {  // max(max(x, 1), 2)
      const double bound = apply_prim(prim, at(at(a).b).value, at(b).value, 0);
      return e_.apply(prim, at(a).a, e_.constant(bound));
    }
    return -1;
  }
  Value select(Value condition, Value a, Value b) {
    if (a == b) return a;
    if (is_constant(condition)) return at(condition).value != 0 ? a : b;
    return -1;
  }

  const std::vector<ExprNode>& nodes_;
  ExpressionBuilder& e_;
};

}  // namespace

Value ExpressionBuilder::append(const ExprNode& node) {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const ExprNode& n) { return same(n, node); });
  if (found != nodes_.end()) return Value(found - nodes_.begin());
  nodes_.push_back(node);
  return Value(nodes_.size() - 1);
}

Value ExpressionBuilder::input(int index) { return append({.prim = Prim::input, .index = index}); }

Value ExpressionBuilder::constant(double value) { return append({.prim = Prim::constant, .value = value}); }

Value ExpressionBuilder::uniform(uint32_t stream, bool per_sample) {
  return append({.prim = Prim::uniform, .index = int32_t(stream), .value = per_sample ? 1.0 : 0.0});
}

Value ExpressionBuilder::apply(Prim prim, Value a, Value b, Value c) {
  const int operands = arity(prim);
  const auto valid = [&](Value v, int position) {
    return position < operands ? v >= 0 && v < Value(nodes_.size()) : v == -1;
  };
  require(operands > 0 && valid(a, 0) && valid(b, 1) && valid(c, 2), "{} takes {} operands, has ({}, {}, {})",
          name_of(prim), operands, a, b, c);

  const auto is_constant = [&](Value v) { return v < 0 || nodes_[size_t(v)].prim == Prim::constant; };
  const auto value = [&](Value v) { return v < 0 ? 0.0 : nodes_[size_t(v)].value; };
  if (is_constant(a) && is_constant(b) && is_constant(c))
    return constant(apply_prim(prim, value(a), value(b), value(c)));

  // One order for commutative operands: constants second, inputs by number, else as they were made.
  const auto is_input = [&](Value v) { return nodes_[size_t(v)].prim == Prim::input; };
  const auto index = [&](Value v) { return nodes_[size_t(v)].index; };
  if (is_commutative(prim)) {
    const bool swapped = is_input(a) && is_input(b) ? index(b) < index(a) : b < a;
    if (is_constant(a) || (!is_constant(b) && swapped)) std::swap(a, b);
  }

  const Value simpler = Simplifier(nodes_, *this).simplify(prim, a, b, c);
  return simpler >= 0 ? simpler : append({.prim = prim, .a = a, .b = b, .c = c});
}

std::vector<Value> ExpressionBuilder::inline_expression(const Expression& other,
                                                        std::span<const Value> arguments) {
  require(int32_t(arguments.size()) >= other.inputs, "{} arguments for {} inputs", arguments.size(),
          other.inputs);
  std::vector<Value> mapped(other.nodes.size());
  const auto at = [&](int32_t id) { return id < 0 ? -1 : mapped[size_t(id)]; };
  for (size_t i = 0; i < other.nodes.size(); ++i) {
    const ExprNode& n = other.nodes[i];
    if (n.prim == Prim::input)
      mapped[i] = arguments[size_t(n.index)];
    else if (arity(n.prim) == 0)
      mapped[i] = append(n);
    else
      mapped[i] = apply(n.prim, at(n.a), at(n.b), at(n.c));
  }
  std::vector<Value> outputs;
  for (int32_t id : other.outputs) outputs.push_back(at(id));
  return outputs;
}

Expression ExpressionBuilder::finish(std::vector<Value> outputs, int inputs) const {
  // Depth first from the outputs: operands lie close to their use, and the order does not
  // depend on the order of building.
  Expression result;
  result.inputs = inputs;
  std::vector<int32_t> number(nodes_.size(), -1);
  std::vector<Value> stack;
  for (Value output : outputs) {
    require(output >= 0 && output < Value(nodes_.size()), "an expression's output {} is no value", output);
    stack.push_back(output);
    while (!stack.empty()) {
      const Value v = stack.back();
      const ExprNode& n = nodes_[size_t(v)];
      Value missing = -1;
      for (Value operand : {n.c, n.b, n.a})
        if (operand >= 0 && number[size_t(operand)] < 0) missing = operand;
      if (missing >= 0) {
        stack.push_back(missing);
        continue;
      }
      stack.pop_back();
      if (number[size_t(v)] >= 0) continue;
      require(n.prim != Prim::input || n.index < inputs, "input {} of {}", n.index, inputs);
      number[size_t(v)] = int32_t(result.nodes.size());
      ExprNode copy = n;
      for (int32_t* operand : {&copy.a, &copy.b, &copy.c})
        if (*operand >= 0) *operand = number[size_t(*operand)];
      result.nodes.push_back(copy);
    }
    result.outputs.push_back(number[size_t(output)]);
  }
  return result;
}

}  // namespace ren
