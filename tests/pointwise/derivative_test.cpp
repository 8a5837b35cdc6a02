// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/base/rng.h"
#include "engine/pointwise/activations.h"
#include "engine/pointwise/expression.h"

namespace ren {
namespace {

using Doubles = std::vector<double>;

Doubles outputs_of(const Expression& e, const Doubles& x) {
  Doubles y(e.outputs.size());
  evaluate(e, x, {}, y);
  return y;
}

std::vector<int> all_inputs(const Expression& e) {
  std::vector<int> wanted(size_t(e.inputs));
  std::iota(wanted.begin(), wanted.end(), 0);
  return wanted;
}

// d(sum_k dy_k y_k)/dx by the symbolic derivative.
Doubles symbolic(const Expression& e, const Doubles& x, const Doubles& dy) {
  const Expression derivative = differentiate(e, all_inputs(e));
  EXPECT_EQ(derivative.inputs, e.inputs + 2 * int(e.outputs.size()));
  Doubles arguments = x;
  const Doubles y = outputs_of(e, x);
  arguments.insert(arguments.end(), y.begin(), y.end());
  arguments.insert(arguments.end(), dy.begin(), dy.end());
  return outputs_of(derivative, arguments);
}

Doubles numeric(const Expression& e, const Doubles& x, const Doubles& dy) {
  Doubles gradient;
  for (size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-5 * std::max(1.0, std::fabs(x[i]));
    Doubles up = x, down = x;
    up[i] += h, down[i] -= h;
    const Doubles above = outputs_of(e, up), below = outputs_of(e, down);
    double sum = 0;
    for (size_t k = 0; k < dy.size(); ++k) sum += dy[k] * (above[k] - below[k]) / (2 * h);
    gradient.push_back(sum);
  }
  return gradient;
}

void expect_gradient(const Expression& e, const Doubles& x, const Doubles& dy) {
  const Doubles found = symbolic(e, x, dy), wanted = numeric(e, x, dy);
  for (size_t i = 0; i < x.size(); ++i)
    // Central differences err by h^2 (1e-10 times a third derivative) and by 1e-16 / h.
    EXPECT_NEAR(found[i], wanted[i], 1e-7 * (1 + std::fabs(wanted[i])))
        << e.text() << " by x" << i << " at " << x[i] << ": " << differentiate(e, all_inputs(e)).text();
}

// ---- Every primitive -------------------------------------------------------------------------

class Primitive : public testing::TestWithParam<Prim> {};

TEST_P(Primitive, AgreesWithCentralDifferences) {
  const Prim prim = GetParam();
  const bool positive = prim == Prim::log || prim == Prim::sqrt || prim == Prim::rsqrt;
  RandomStream random(17, uint32_t(prim), 0);
  for (int trial = 0; trial < 20; ++trial) {
    // As the last step (its derivative reads y), and inside of another (it is computed again).
    for (const bool inside : {false, true}) {
      ExpressionBuilder e;
      Value operands[3] = {-1, -1, -1};
      Doubles x;
      for (int i = 0; i < arity(prim); ++i) {
        operands[i] = e.input(i);
        // Away from poles and kinks, by more than the differences reach.
        const double magnitude = double(random.uniform(0.3f, 2.0f)) + 0.01 * i;
        x.push_back(positive || random.uniform() < 0.5f ? magnitude : -magnitude);
      }
      if (prim == Prim::select) operands[0] = e.less(e.input(0), e.constant(0));
      Value y = e.apply(prim, operands[0], operands[1], operands[2]);
      if (inside) y = e.mul(y, e.apply(Prim::tanh, e.add(y, e.constant(0.5))));
      expect_gradient(e.finish({y}, arity(prim)), x, {double(random.uniform(-2, 2))});
    }
  }
}

std::string prim_name(const testing::TestParamInfo<Prim>& info) { return name_of(info.param); }

INSTANTIATE_TEST_SUITE_P(All, Primitive,
                         testing::Values(Prim::add, Prim::sub, Prim::mul, Prim::div, Prim::max, Prim::min,
                                         Prim::neg, Prim::abs, Prim::exp, Prim::log, Prim::sqrt, Prim::rsqrt,
                                         Prim::reciprocal, Prim::tanh, Prim::erf, Prim::sigmoid,
                                         Prim::softplus, Prim::less, Prim::less_equal, Prim::equal,
                                         Prim::select),
                         prim_name);

TEST(Derivative, OfBothKindsOfBound) {
  for (const Prim prim : {Prim::max, Prim::min}) {
    ExpressionBuilder e;
    const Expression bounded = e.finish({e.apply(prim, e.input(0), e.constant(0.5))}, 1);
    expect_gradient(bounded, {0.2}, {3});
    expect_gradient(bounded, {0.8}, {3});
    EXPECT_EQ(symbolic(bounded, {0.5}, {3})[0], 0) << "nothing passes at the bound itself";
  }
}

TEST(Derivative, TiesAreSplitEvenly) {
  for (const Prim prim : {Prim::max, Prim::min}) {
    ExpressionBuilder e;
    const Expression larger = e.finish({e.apply(prim, e.input(0), e.input(1))}, 2);
    EXPECT_EQ(symbolic(larger, {2, 2}, {3}), (Doubles{1.5, 1.5}));
  }
}

TEST(Derivative, AbsHasNoneAtZero) {
  ExpressionBuilder e;
  EXPECT_EQ(symbolic(e.finish({e.apply(Prim::abs, e.input(0))}, 1), {0}, {3})[0], 0);
}

// ---- Expressions -----------------------------------------------------------------------------

// A random DAG of smooth primitives over three inputs, with two outputs, one of them inside the other.
Expression random_expression(RandomStream& random) {
  const Prim prims[] = {Prim::add, Prim::sub,     Prim::mul,      Prim::tanh,
                        Prim::erf, Prim::sigmoid, Prim::softplus, Prim::neg};
  ExpressionBuilder e;
  std::vector<Value> values{e.input(0), e.input(1), e.input(2), e.constant(0.7)};
  Value first = -1;
  for (int i = 0; i < 12; ++i) {
    const Prim prim = prims[random.below(8)];
    const auto pick = [&] { return values[random.below(uint32_t(values.size()))]; };
    values.push_back(e.apply(prim, pick(), arity(prim) > 1 ? pick() : -1));
    if (i == 6) first = values.back();
  }
  return e.finish({first, e.add(values.back(), e.mul(first, e.input(0)))}, 3);
}

TEST(Derivative, OfRandomExpressionsWithTwoOutputs) {
  RandomStream random(5, 0, 0);
  for (int trial = 0; trial < 300; ++trial) {
    const Expression e = random_expression(random);
    const auto number = [&] { return double(random.uniform(-1, 1)); };
    expect_gradient(e, {number(), number(), number()}, {number(), number()});
  }
}

TEST(Derivative, ReadsTheOutputWhereThatIsCheaper) {
  for (const char* name : {"Relu", "Sigmoid", "Tanh", "Exp", "Sqrt"}) {
    const Expression derivative = differentiate(activation(name), std::vector<int>{0});
    std::vector<int32_t> kept;
    compact_inputs(derivative, kept);
    EXPECT_EQ(kept, (std::vector<int32_t>{1, 2})) << name << ": " << derivative.text();
  }
  EXPECT_EQ(differentiate(activation("Relu"), std::vector<int>{0}).text(), "y0 = select(less(0, x1), x2, 0)");
}

// Kept in 16 bits, what lies at a bound of 0.1 is 0.10009766 in BF16 and 0.099975586 in FP16: beyond it.
TEST(Derivative, OfABoundThat16BitsDoNotHoldReadsTheInput) {
  const auto reads = [](Prim prim, double bound) {
    ExpressionBuilder e;
    const Expression clip = e.finish({e.apply(prim, e.input(0), e.constant(bound))}, 1);
    std::vector<int32_t> kept;
    compact_inputs(differentiate(clip, std::vector<int>{0}), kept);
    return kept[0];  // 0: the input, 1: the output
  };
  for (const Prim prim : {Prim::max, Prim::min}) {
    for (const double bound : {0.0, 0.5, 1.0, -1.0, 3.0, 6.0, 6.1035156250e-05, 65280.0})
      EXPECT_EQ(reads(prim, bound), 1) << bound;
    for (const double bound : {0.1, -0.1, 0.7, 257.0, 3.0517578125e-05, 131072.0, 1e30})
      EXPECT_EQ(reads(prim, bound), 0) << bound;
  }
  ExpressionBuilder e;
  const Expression clip = e.finish({e.maximum(e.input(0), e.constant(0.1))}, 1);
  const Expression derivative = differentiate(clip, std::vector<int>{0});
  EXPECT_EQ(outputs_of(derivative, {0.05, 0.10009766, 1})[0], 0);
  EXPECT_EQ(outputs_of(derivative, {0.2, 0.2, 1})[0], 1);
}

TEST(Derivative, OfWhatDoesNotDependOnTheInputIsZero) {
  ExpressionBuilder e;
  const Expression expression = e.finish({e.less(e.input(0), e.input(1)), e.input(1)}, 2);
  const Expression derivative = differentiate(expression, std::vector<int>{0, 1});
  EXPECT_TRUE(is_constant(derivative, 0, 0));
  EXPECT_FALSE(is_constant(derivative, 1, 0));
}

TEST(Derivative, BranchesNotTakenGiveZeroEvenWhereTheyOverflow) {
  ExpressionBuilder e;
  const Value x = e.input(0);
  // exp(1000) is infinite; 1 / 0 is too.
  const Expression grown =
      e.finish({e.select(e.less(e.constant(1), x), x, e.apply(Prim::exp, e.mul(x, x)))}, 1);
  EXPECT_EQ(symbolic(grown, {1000}, {3})[0], 3);
  ExpressionBuilder f;
  const Value z = f.input(0);
  const Expression inverse =
      f.finish({f.select(f.apply(Prim::equal, z, f.constant(0)), z, f.div(f.constant(2), z))}, 1);
  EXPECT_EQ(symbolic(inverse, {0}, {3})[0], 3);
}

TEST(Derivative, UsesTheSameRandomNumbers) {
  ExpressionBuilder e;
  const Value kept = e.less(e.uniform(4, false), e.constant(0.5));
  const Expression dropout = e.finish({e.select(kept, e.mul(e.input(0), e.constant(2)), e.constant(0))}, 1);
  const Expression derivative = differentiate(dropout, std::vector<int>{0});
  for (uint64_t element = 0; element < 64; ++element) {
    const RandomPoint point{.key = {1, 2}, .element = element};
    double y = 0, dx = 0;
    evaluate(dropout, std::vector<double>{1}, point, {&y, 1});
    evaluate(derivative, std::vector<double>{1, y, 1}, point, {&dx, 1});
    EXPECT_EQ(dx, y);
  }
}

// ---- Activations -----------------------------------------------------------------------------

TEST(Activations, AgreeWithCentralDifferences) {
  for (const ActivationInfo& info : activations()) {
    const std::string name = info.name;
    const bool positive = name == "Log" || name == "Sqrt" || name == "Reciprocal";
    for (double x = positive ? 0.05 : -7.035; x < 7; x += 0.13) expect_gradient(activation(name), {x}, {1.7});
  }
}

struct TorchPoint {
  const char* name;
  double alpha, beta, x, y, dx;
};
constexpr TorchPoint kTorch[] = {
#define REN_POINT(name, alpha, beta, x, y, dx) {#name, alpha, beta, x, y, dx},
#include "torch_activations.inc"
#undef REN_POINT
};

TEST(Activations, AgreeWithPyTorchKinksIncluded) {
  for (const TorchPoint& p : kTorch) {
    const std::string name = p.name;
    Expression e;
    Doubles x{p.x};
    if (name == "Clip") {
      e = clip(p.alpha, p.beta);
    } else if (name == "PRelu") {
      e = prelu();
      x.push_back(p.alpha);
    } else {
      e = activation(name, p.alpha, p.beta);
    }
    // Both sides compute in double. GELU's 1 + erf(x) cancels for negative x and leaves an error
    // of 1e-16 times x. SELU's constants in ONNX are floats, and so is the 1/6 in PyTorch's gradient
    // of hardsigmoid: 3e-8 apart.
    const double relative = name == "Selu" || name == "HardSigmoid" ? 1e-7 : 1e-13;
    EXPECT_NEAR(outputs_of(e, x)[0], p.y, relative * std::fabs(p.y) + 1e-14) << name << " of " << p.x;
    EXPECT_NEAR(symbolic(e, x, {1})[0], p.dx, relative * std::fabs(p.dx) + 1e-14)
        << "d" << name << " at " << p.x;
  }
}

TEST(Activations, TableNamesEveryActivation) {
  for (const ActivationInfo& info : activations()) {
    bool found = false;
    for (const TorchPoint& p : kTorch) found |= std::string(p.name) == info.name;
    EXPECT_TRUE(found) << info.name;
  }
}

TEST(Activations, DefaultsAreOnnxs) {
  EXPECT_EQ(find_activation("LeakyRelu")->alpha, 0.01);
  EXPECT_EQ(find_activation("HardSigmoid")->alpha, 0.2);
  EXPECT_EQ(find_activation("HardSigmoid")->beta, 0.5);
  EXPECT_EQ(find_activation("ThresholdedRelu")->alpha, 1);
  EXPECT_EQ(find_activation("Nothing"), nullptr);
  EXPECT_ANY_THROW(activation("Nothing"));
}

TEST(Activations, PReluPassesAGradientToItsSlope) {
  EXPECT_EQ(symbolic(prelu(), {-2, 0.25}, {3}), (Doubles{0.75, -6}));
  EXPECT_EQ(symbolic(prelu(), {2, 0.25}, {3}), (Doubles{3, 0}));
}

TEST(Activations, ClipLeavesInfiniteBoundsOut) {
  EXPECT_EQ(clip(0, std::numeric_limits<double>::infinity()).text(), "y0 = max(x0, 0)");
  EXPECT_EQ(clip(0, 6).text(), "y0 = min(max(x0, 0), 6)");
}

}  // namespace
}  // namespace ren
