// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "engine/base/status.h"
#include "engine/pointwise/expression.h"

namespace ren {
namespace {

// Is the value the same in FP16 and BF16? Eight significant bits, within FP16's normal range.
bool exact_in_16_bits(double value) {
  if (value == 0) return true;
  int exponent = 0;
  const double bits = std::frexp(value, &exponent) * 256;
  return bits == std::trunc(bits) && exponent > -14 && exponent <= 16;
}

// Reverse mode over the nodes of one expression. `x` are the values of the nodes while going
// forward: an output's is the input y that holds it, everything else is computed again.
class Derivative {
 public:
  explicit Derivative(const Expression& source) : source_(source), adjoints_(source.nodes.size(), -1) {
    forward();
  }

  Expression run(std::span<const int> wanted) {
    const int n = source_.inputs, m = int(source_.outputs.size());
    for (int k = 0; k < m; ++k) accumulate(source_.outputs[size_t(k)], e_.input(n + m + k));
    for (size_t i = source_.nodes.size(); i-- > 0;)
      if (adjoints_[i] >= 0) backward(int32_t(i));

    std::vector<Value> outputs;
    for (int wanted_input : wanted) outputs.push_back(adjoint_of_input(wanted_input));
    return e_.finish(std::move(outputs), n + 2 * m);
  }

 private:
  void forward() {
    for (const ExprNode& n : source_.nodes) {
      const auto at = [&](int32_t id) { return id < 0 ? -1 : values_[size_t(id)]; };
      const int32_t id = int32_t(values_.size());
      if (n.prim == Prim::input)
        values_.push_back(e_.input(n.index));
      else if (n.prim == Prim::constant)
        values_.push_back(e_.constant(n.value));
      else if (n.prim == Prim::uniform)
        values_.push_back(e_.uniform(uint32_t(n.index), n.value != 0));
      else if (const int k = output_number(id); k >= 0)
        values_.push_back(e_.input(source_.inputs + k));
      else
        values_.push_back(e_.apply(n.prim, at(n.a), at(n.b), at(n.c)));
    }
  }

  int output_number(int32_t id) const {
    for (size_t k = 0; k < source_.outputs.size(); ++k)
      if (source_.outputs[k] == id) return int(k);
    return -1;
  }

  Value adjoint_of_input(int index) {
    for (size_t i = 0; i < source_.nodes.size(); ++i)
      if (source_.nodes[i].prim == Prim::input && source_.nodes[i].index == index && adjoints_[i] >= 0)
        return adjoints_[i];
    return e_.constant(0);
  }

  void accumulate(int32_t id, Value contribution) {
    if (source_.nodes[size_t(id)].prim == Prim::constant) return;
    Value& adjoint = adjoints_[size_t(id)];
    adjoint = adjoint < 0 ? contribution : e_.add(adjoint, contribution);
  }

  // g * factor. Where g is a select's, the factor goes inside: a branch that wasn't taken must
  // give 0 though its factor may be infinite (the exp of an ELU at large x).
  Value scale(Value g, Value factor) {
    for (Guard& guard : guards_)
      if (guard.value == g) {
        const Value inner = e_.mul(guard.inner, factor), zero = e_.constant(0);
        return guarded(guard.condition, inner, guard.when_true ? inner : zero, guard.when_true ? zero : inner,
                       guard.when_true);
      }
    return e_.mul(g, factor);
  }

  Value guarded(Value condition, Value inner, Value a, Value b, bool when_true) {
    const Value value = e_.select(condition, a, b);
    guards_.push_back({value, condition, inner, when_true});
    return value;
  }

  // The table: what dy = g hands to each operand, for y = prim(x, z, w). `max` and `min` with
  // a constant pass nothing at the kink (torch.relu, relu6, hardtanh, hardsigmoid; torch.clamp
  // alone would pass 1 there); of two values they split a tie evenly (torch.maximum). d|x| = 0
  // at 0. select hands g to the branch taken, comparisons hand on nothing.
  void backward(int32_t id) {
    const ExprNode& n = source_.nodes[size_t(id)];
    const Value g = adjoints_[size_t(id)], y = values_[size_t(id)];
    const auto at = [&](int32_t operand) { return operand < 0 ? -1 : values_[size_t(operand)]; };
    const Value x = at(n.a), z = at(n.b);
    const auto c = [&](double v) { return e_.constant(v); };
    const auto to_a = [&](Value v) { accumulate(n.a, v); };
    const auto to_b = [&](Value v) { accumulate(n.b, v); };
    const auto neg = [&](Value v) { return scale(v, e_.constant(-1)); };
    // clang-format off
    switch (n.prim) {
      case Prim::input:
      case Prim::constant:
      case Prim::uniform:
      case Prim::less:
      case Prim::less_equal:
      case Prim::equal: break;
      case Prim::add: to_a(g), to_b(g); break;
      case Prim::sub: to_a(g), to_b(neg(g)); break;
      case Prim::mul: to_a(scale(g, z)), to_b(scale(g, x)); break;
      case Prim::div: to_a(divide(g, z)), to_b(neg(divide(scale(g, y), z))); break;
      case Prim::max: extremum(n, g, y, x, z, true); break;
      case Prim::min: extremum(n, g, y, x, z, false); break;
      case Prim::neg: to_a(neg(g)); break;
      case Prim::abs: to_a(e_.select(e_.less(c(0), x), g, e_.select(e_.less(x, c(0)), neg(g), c(0)))); break;
      case Prim::exp: to_a(scale(g, y)); break;
      case Prim::log: to_a(divide(g, x)); break;
      case Prim::sqrt: to_a(divide(scale(g, c(0.5)), y)); break;
      case Prim::rsqrt: to_a(scale(scale(g, c(-0.5)), e_.mul(y, e_.mul(y, y)))); break;
      case Prim::reciprocal: to_a(neg(scale(g, e_.mul(y, y)))); break;
      case Prim::tanh: to_a(scale(g, e_.sub(c(1), e_.mul(y, y)))); break;
      case Prim::erf: to_a(scale(scale(g, c(2 / std::sqrt(std::numbers::pi))), gaussian(x))); break;
      case Prim::sigmoid: to_a(scale(g, e_.mul(y, e_.sub(c(1), y)))); break;
      case Prim::softplus: to_a(scale(g, e_.apply(Prim::sigmoid, x))); break;
      case Prim::select:
        accumulate(n.b, guarded(x, g, g, c(0), true));
        accumulate(n.c, guarded(x, g, c(0), g, false));
        break;
    }
    // clang-format on
  }

  Value divide(Value g, Value divisor) {
    for (const Guard& guard : guards_)
      if (guard.value == g) return scale(g, e_.apply(Prim::reciprocal, divisor));
    return e_.div(g, divisor);
  }

  Value gaussian(Value x) { return e_.apply(Prim::exp, e_.apply(Prim::neg, e_.mul(x, x))); }  // exp(-x*x)

  void extremum(const ExprNode& n, Value g, Value y, Value x, Value z, bool largest) {
    const auto wins = [&](Value a, Value b) { return largest ? e_.less(b, a) : e_.less(a, b); };
    const Value zero = e_.constant(0);
    const ExprNode& bound = source_.nodes[size_t(n.b)];
    if (bound.prim == Prim::constant) {  // the builder puts constants second
      // An output may be kept in 16 bits. Where the bound isn't one of their values, what lies at it is
      // rounded to beyond it, and looks as if it had won.
      const bool by_output = output_number_of(n) >= 0 && exact_in_16_bits(bound.value);
      accumulate(n.a, e_.select(wins(by_output ? y : x, z), g, zero));
      return;
    }
    const Value tie = e_.select(e_.apply(Prim::equal, x, z), e_.mul(g, e_.constant(0.5)), zero);
    accumulate(n.a, e_.select(wins(x, z), g, tie));
    accumulate(n.b, e_.select(wins(z, x), g, tie));
  }

  int output_number_of(const ExprNode& n) const { return output_number(int32_t(&n - source_.nodes.data())); }

  struct Guard {
    Value value, condition, inner;  // value = select(condition, inner, 0), or with the branches swapped
    bool when_true;
  };

  const Expression& source_;
  ExpressionBuilder e_;
  std::vector<Value> values_, adjoints_;
  std::vector<Guard> guards_;
};

}  // namespace

Expression differentiate(const Expression& expression, std::span<const int> wanted) {
  return Derivative(expression).run(wanted);
}

}  // namespace ren
