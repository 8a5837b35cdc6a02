// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/base/status.h"

namespace ren {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double value_of(const Expression& e, std::vector<double> inputs) {
  std::vector<double> outputs(e.outputs.size());
  evaluate(e, inputs, {}, outputs);
  return outputs[0];
}

std::string text_of(ExpressionBuilder& e, Value v, int inputs) { return e.finish({v}, inputs).text(); }

TEST(Builder, EqualSubexpressionsAreOneNode) {
  ExpressionBuilder e;
  const Value a = e.add(e.input(0), e.input(1)), b = e.add(e.input(1), e.input(0));
  EXPECT_EQ(a, b);
  EXPECT_EQ(text_of(e, e.mul(a, e.apply(Prim::exp, b)), 2), "t0 = add(x0, x1); y0 = mul(t0, exp(t0))");
}

TEST(Builder, FoldsConstants) {
  ExpressionBuilder e;
  EXPECT_EQ(text_of(e, e.add(e.constant(2), e.mul(e.constant(3), e.constant(4))), 0), "y0 = 14");
  EXPECT_EQ(text_of(e, e.select(e.less(e.constant(1), e.constant(2)), e.input(0), e.input(1)), 2), "y0 = x0");
}

TEST(Builder, IdentitiesThatHoldForEveryNumber) {
  ExpressionBuilder e;
  const Value x = e.input(0), z = e.input(1), zero = e.constant(0), one = e.constant(1);
  const auto neg = [&](Value v) { return e.apply(Prim::neg, v); };
  EXPECT_EQ(e.add(x, zero), x);
  EXPECT_EQ(e.add(zero, x), x);
  EXPECT_EQ(e.sub(x, zero), x);
  EXPECT_EQ(e.sub(zero, x), neg(x));
  EXPECT_EQ(e.mul(one, x), x);
  EXPECT_EQ(e.mul(x, e.constant(-1)), neg(x));
  EXPECT_EQ(e.div(x, one), x);
  EXPECT_EQ(e.div(x, e.constant(4)), e.mul(x, e.constant(0.25)));
  EXPECT_EQ(neg(neg(x)), x);
  EXPECT_EQ(e.add(x, neg(z)), e.sub(x, z));
  EXPECT_EQ(e.sub(x, neg(z)), e.add(x, z));
  EXPECT_EQ(e.maximum(x, x), x);
  EXPECT_EQ(e.maximum(e.maximum(x, one), e.constant(2)), e.maximum(x, e.constant(2)));
  EXPECT_EQ(e.select(z, x, x), x);
  EXPECT_EQ(e.apply(Prim::abs, neg(x)), e.apply(Prim::abs, x));
}

TEST(Builder, KeepsWhatInfinityOrNaNWouldChange) {
  ExpressionBuilder e;
  const Value x = e.input(0);
  EXPECT_TRUE(std::isnan(value_of(e.finish({e.mul(x, e.constant(0))}, 1), {kInfinity})));
  EXPECT_TRUE(std::isnan(value_of(e.finish({e.sub(x, x)}, 1), {kInfinity})));
  EXPECT_TRUE(std::isnan(value_of(e.finish({e.div(x, x)}, 1), {0})));
  EXPECT_NE(e.div(x, e.constant(3)), e.mul(x, e.constant(1.0 / 3)));
}

TEST(Builder, ZerosOfBothSignsAreDifferentConstants) {
  ExpressionBuilder e;
  EXPECT_NE(e.constant(0.0), e.constant(-0.0));
  EXPECT_EQ(e.constant(std::nan("")), e.constant(std::nan("")));
}

TEST(Builder, RefusesAWrongNumberOfOperands) {
  ExpressionBuilder e;
  const Value x = e.input(0);
  EXPECT_THROW(e.apply(Prim::add, x), Error);
  EXPECT_THROW(e.apply(Prim::exp, x, x), Error);
  EXPECT_THROW(e.apply(Prim::add, x, 99), Error);
  EXPECT_THROW(e.finish({x}, 0), Error);
}

TEST(Builder, FinishDropsWhatIsUnusedAndOrdersByUse) {
  ExpressionBuilder e;
  e.apply(Prim::exp, e.input(1));
  const Value y = e.apply(Prim::tanh, e.input(0));
  const Expression expression = e.finish({y}, 2);
  EXPECT_EQ(expression.nodes.size(), 2u);
  EXPECT_EQ(expression.inputs, 2);
  std::vector<int32_t> kept;
  const Expression compact = compact_inputs(expression, kept);
  EXPECT_EQ(compact.inputs, 1);
  EXPECT_EQ(kept, std::vector<int32_t>{0});
}

TEST(Builder, CompactRenumbers) {
  ExpressionBuilder e;
  std::vector<int32_t> kept;
  const Expression compact = compact_inputs(e.finish({e.sub(e.input(4), e.input(1))}, 6), kept);
  EXPECT_EQ(compact.text(), "y0 = sub(x1, x0)");
  EXPECT_EQ(kept, (std::vector<int32_t>{1, 4}));
}

TEST(Builder, InliningReplacesInputs) {
  ExpressionBuilder inner;
  const Expression square = inner.finish({inner.mul(inner.input(0), inner.input(0)), inner.input(0)}, 1);
  ExpressionBuilder e;
  const std::vector<Value> argument{e.add(e.input(0), e.input(1))};
  const std::vector<Value> outputs = e.inline_expression(square, argument);
  EXPECT_EQ(e.finish(outputs, 2).text(), "t0 = add(x0, x1); y0 = mul(t0, t0); y1 = t0");
}

TEST(Evaluate, EveryPrimitive) {
  const double nan = std::nan("");
  const auto p = [](Prim prim, double a, double b = 0, double c = 0) { return apply_prim(prim, a, b, c); };
  EXPECT_EQ(p(Prim::max, 1, 2), 2);
  EXPECT_EQ(p(Prim::min, 1, 2), 1);
  EXPECT_TRUE(std::isnan(p(Prim::max, nan, 1)) && std::isnan(p(Prim::max, 1, nan)));
  EXPECT_TRUE(std::isnan(p(Prim::min, nan, 1)) && std::isnan(p(Prim::min, 1, nan)));
  EXPECT_EQ(p(Prim::select, 1, 5, nan), 5);
  EXPECT_EQ(p(Prim::select, 0, nan, 5), 5);
  EXPECT_EQ(p(Prim::less, nan, 1), 0);
  EXPECT_EQ(p(Prim::less_equal, 1, 1), 1);
  EXPECT_EQ(p(Prim::equal, nan, nan), 0);
  EXPECT_EQ(p(Prim::sigmoid, -1000), 0);
  EXPECT_EQ(p(Prim::sigmoid, 1000), 1);
  EXPECT_EQ(p(Prim::softplus, 1000), 1000);
  EXPECT_NEAR(p(Prim::softplus, -40), std::exp(-40), 1e-30);
  EXPECT_TRUE(std::isnan(p(Prim::softplus, nan)) && std::isnan(p(Prim::sigmoid, nan)));
  EXPECT_EQ(p(Prim::rsqrt, 4), 0.5);
}

TEST(Random, KnownAnswers) {
  // Philox4x32-10's published test vectors: counter and key all zeros.
  EXPECT_EQ(uniform_at({}, 0, false), Philox::to_unit(0x6627E8D5u));
  EXPECT_EQ(uniform_at({.element = 3}, 0, false), Philox::to_unit(0x9B00DBD8u));
  // The definition's counter, by hand.
  const RandomPoint point{{7, 8}, 9, 0x500000003ull, 22};
  const Philox::Counter block = Philox::generate({5, 3, (2 * 11) ^ (5u << 16), 9}, {7, 8});
  EXPECT_EQ(uniform_at(point, 11, false), Philox::to_unit(block[2]));
  const Philox::Counter sample = Philox::generate({0, 3, (2 * 11 + 1) ^ (5u << 16), 9}, {7, 8});
  EXPECT_EQ(uniform_at(point, 11, true), Philox::to_unit(sample[0]));
}

TEST(Random, EverythingThatKeysItChangesIt) {
  std::set<float> seen;
  const auto add = [&](RandomPoint p, uint32_t stream, bool per_sample) {
    seen.insert(uniform_at(p, stream, per_sample));
  };
  add({}, 0, false), add({.key = {1, 0}}, 0, false), add({.key = {0, 1}}, 0, false),
      add({.step = 1}, 0, false);
  add({.sample = 1}, 0, false), add({.element = 1}, 0, false), add({.element = 4}, 0, false),
      add({}, 1, false);
  add({}, 0, true);
  EXPECT_EQ(seen.size(), 9u);
}

TEST(Random, IsUniform) {
  double sum = 0, squares = 0;
  const int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double u =
        double(uniform_at({.sample = uint64_t(i / 1000), .element = uint64_t(i % 1000)}, 3, false));
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u, squares += u * u;
  }
  // Four standard deviations of the mean of so many numbers.
  EXPECT_NEAR(sum / count, 0.5, 4 * std::sqrt(1.0 / 12 / count));
  EXPECT_NEAR(squares / count, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / count));
}

TEST(Text, NamesRandomNumbersAndConstants) {
  ExpressionBuilder e;
  const Value keep = e.less(e.uniform(3, false), e.constant(0.9));
  EXPECT_EQ(text_of(e, e.select(keep, e.input(0), e.constant(0)), 1),
            "y0 = select(less(uniform(3), 0.9), x0, 0)");
  EXPECT_EQ(text_of(e, e.uniform(2, true), 0), "y0 = uniform_sample(2)");
  EXPECT_TRUE(e.finish({keep}, 0).uses_random());
}

TEST(SelectOutputs, KeepsOrderAndInputs) {
  ExpressionBuilder e;
  const Expression both = e.finish({e.input(0), e.apply(Prim::neg, e.input(1))}, 2);
  const int second[] = {1};
  const Expression one = select_outputs(both, second);
  EXPECT_EQ(one.text(), "y0 = neg(x1)");
  EXPECT_EQ(one.inputs, 2);
}

}  // namespace
}  // namespace ren
