// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/batch_norm/from_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "harness.h"

namespace ren::test {
namespace {

std::shared_ptr<BatchNormFromSumsAttributes> layers(std::vector<BatchNormFromSumsAttributes::Layer> of) {
  auto a = std::make_shared<BatchNormFromSumsAttributes>();
  a->layers = std::move(of);
  return a;
}

// What a convolution gives: sums of `rows` values about `mean`, and of their squares.
std::pair<Values, Values> sums_of(int64_t rows, int64_t channels, double mean, uint64_t seed) {
  const Values x = random_values(rows * channels, seed, mean - 1, mean + 1);
  std::pair<Values, Values> sums{Values(size_t(channels), 0), Values(size_t(channels), 0)};
  for (size_t i = 0; i < x.size(); ++i) {
    sums.first[i % size_t(channels)] += x[i];
    sums.second[i % size_t(channels)] += x[i] * x[i];
  }
  return sums;
}

// Three layers: one with everything, one without running statistics, one of which nobody wants the results.
struct Layers {
  Case c;
  std::vector<TensorId> inputs, outputs;

  Layers() {
    for (const int64_t channels : {5, 1, 33}) {
      const auto [sums, squares] = sums_of(40, channels, 0.5, uint64_t(channels));
      const Shape v{1, 1, 1, channels};
      inputs.push_back(c.input("sums", v, DType::f32, sums));
      inputs.push_back(c.input("squares", v, DType::f32, squares));
      const bool tracked = channels != 1;
      inputs.push_back(tracked ? c.input("mean", v, DType::f32, 8) : kNoTensor);
      inputs.push_back(tracked ? c.input("variance", v, DType::f32, random_values(channels, 9, 0.5, 2))
                               : kNoTensor);
      inputs.push_back(channels == 5 ? c.input("shift", v, DType::f32, 10) : kNoTensor);
    }
    outputs = c.add(Op::batch_norm_from_sums, inputs,
                    layers({{40, 1e-5f, 0.9f}, {40, 1e-3f, 0.5f}, {40, 0.1f, 0.99f}}));
    for (size_t k : {4, 5}) outputs[k] = c.graph.nodes[0].outputs[k] = kNoTensor;
  }
};

// The difference of squares and mean * sum, both within a factor of two of the deviations here, loses at most
// two bits; the rest is a few roundings.
constexpr double kRoundings = 16 * 0x1p-24;

TEST(FromSums, AgreesWithTheReference) {
  const Layers l;
  const auto wanted = l.c.run_reference(), found = l.c.run_cpu();
  for (const auto* ids : {&l.inputs, &l.outputs})
    for (const TensorId id : *ids)
      if (id != kNoTensor) expect_close(found.at(id), wanted.at(id), kRoundings, 1, l.c.graph.at(id).name);
}

// The same layer by the pass over its values: mean, inverse standard deviation, running statistics.
TEST(FromSums, AgreesWithTheStatisticsOfTheValues) {
  const int64_t rows = 60, channels = 7;
  const Values x = random_values(rows * channels, 4);
  Values sums(channels, 0), squares(channels, 0);
  for (size_t i = 0; i < x.size(); ++i) sums[i % channels] += x[i], squares[i % channels] += x[i] * x[i];
  Case c;
  const Shape v{1, 1, 1, channels};
  const auto running = [&] {
    return std::pair{c.input("mean", v, DType::f32, 8),
                     c.input("variance", v, DType::f32, random_values(channels, 9, 0.5, 2))};
  };
  auto own = std::make_shared<BatchNormAttributes>();
  own->keep = 0.7f, own->epsilon = 1e-3f;
  const auto [mean1, variance1] = running();
  const auto [mean2, variance2] = running();
  const TensorId shift = c.input("shift", v, DType::f32, 6);
  const auto passed = c.add(Op::batch_norm_statistics,
                            {c.input("x", {3, 4, 5, channels}, DType::f32, x), mean1, variance1, shift}, own);
  const auto summed = c.add(Op::batch_norm_from_sums,
                            {c.input("sums", v, DType::f32, sums), c.input("squares", v, DType::f32, squares),
                             mean2, variance2, shift},
                            layers({{rows, own->epsilon, own->keep}}));
  const auto exact = c.run_reference(), found = c.run_cpu();
  for (const auto& [a, b] :
       {std::pair{passed[0], summed[0]}, {passed[1], summed[1]}, {mean1, mean2}, {variance1, variance2}}) {
    expect_close(exact.at(b), exact.at(a), 1e-6, 1,
                 "reference");  // the sums are rounded to FP32 on the way in
    expect_close(found.at(b), found.at(a), kRoundings, 1, c.graph.at(b).name);
  }
}

TEST(FromSums, ALayerThatIsNotFiniteMovesNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [sum, square] : {std::pair{infinity, infinity}, {std::nan(""), 1.0}, {1.0, infinity}}) {
    Case c;
    const Shape v{1, 1, 1, 2};
    const TensorId mean = c.input("mean", v, DType::f32, Values{3, 3}),
                   variance = c.input("variance", v, DType::f32, Values{4, 4});
    c.add(Op::batch_norm_from_sums,
          {c.input("sums", v, DType::f32, Values{sum, 8}),
           c.input("squares", v, DType::f32, Values{square, 16}), mean, variance, kNoTensor},
          layers({{8, 1e-5f, 0.5f}}));
    for (const auto& values : {c.run_reference(), c.run_cpu()}) {
      EXPECT_EQ(values.at(mean)[0], 3);
      EXPECT_EQ(values.at(variance)[0], 4);
      EXPECT_EQ(values.at(mean)[1], 2);                        // (3 + 1) / 2
      EXPECT_NEAR(values.at(variance)[1], 2 + 4.0 / 7, 1e-6);  // (4 + 8 / (8 - 1)) / 2
    }
  }
}

// Sums whose difference rounds below zero: the variance is zero, not NaN.
TEST(FromSums, ADifferenceBelowZeroCountsAsZero) {
  Case c;
  const Shape v{1, 1, 1, 1};
  const TensorId sums = c.input("sums", v, DType::f32, Values{4}),
                 squares = c.input("squares", v, DType::f32, Values{3.999});
  const auto joined = c.add(Op::batch_norm_from_sums, {sums, squares, kNoTensor, kNoTensor, kNoTensor},
                            layers({{4, 0.25f, 0.9f}}));
  const auto inlined = c.add(Op::pointwise, {sums, squares},
                             std::make_shared<PointwiseAttributes>(statistics_expression(4, 0.25f)));
  for (const auto& values : {c.run_reference(), c.run_cpu()})
    for (const TensorId id : {joined[1], inlined[1]}) EXPECT_EQ(values.at(id)[0], 2);
}

// A 16-bit layer normalised in three ways: by the pass over its values, by the node's results, and by the
// expression of the sums.
class NormalisedBySums : public testing::TestWithParam<DType> {};

TEST_P(NormalisedBySums, IsWhatThePassOverTheValuesGives) {
  const DType type = GetParam();
  const Shape s{6, 7, 5, 24}, v{1, 1, 1, 24};
  const float epsilon = 1e-5f;
  Case c;
  const TensorId x = c.input("x", s, type, random_values(s.elements(), 1, -0.5, 2));
  const TensorId scale = c.input("scale", v, DType::f32, 2), bias = c.input("bias", v, DType::f32, 3);
  ExpressionBuilder sums;
  const auto of_x = c.add(Op::reduce, {x},
                          std::make_shared<ReduceAttributes>(
                              sums.finish({sums.input(0), sums.mul(sums.input(0), sums.input(0))}, 1),
                              ReduceKind::sum, false, false, false, true));
  auto own = std::make_shared<BatchNormAttributes>();
  own->epsilon = epsilon;
  const auto passed = c.add(Op::batch_norm_statistics, {x}, own);
  const auto joined = c.add(Op::batch_norm_from_sums, {of_x[0], of_x[1], kNoTensor, kNoTensor, kNoTensor},
                            layers({{s.pixels(), epsilon, 0.9f}}));
  const auto normalised = [&](const std::vector<TensorId>& statistics) {
    ExpressionBuilder e;
    Value mean = e.input(1), inverse = e.input(2);
    if (statistics == of_x) {
      const auto from =
          e.inline_expression(statistics_expression(s.pixels(), epsilon), std::vector{mean, inverse});
      mean = from[0], inverse = from[1];
    }
    const Value y = e.add(e.mul(e.mul(e.sub(e.input(0), mean), inverse), e.input(3)), e.input(4));
    return c.add(Op::pointwise, {x, statistics[0], statistics[1], scale, bias},
                 std::make_shared<PointwiseAttributes>(e.finish({y}, 5), std::vector<DType>{type}))[0];
  };
  const TensorId by_pass = normalised(passed), by_node = normalised(joined), by_sums = normalised(of_x);
  const auto wanted = c.run_reference(), found = c.run_cpu();
  for (const TensorId y : {by_pass, by_node, by_sums}) {
    // One rounding to the narrow type; the reference normalises the same stored values.
    expect_close(found.at(y), wanted.at(by_pass), type_tolerance(type), 0.01, "against double");
    // FP32 statistics that differ in their last bits: a value in 16 bits is off by at most one place, or
    // where it cancels out of terms of about 1, by 16 roundings of these.
    expect_close(found.at(y), found.at(by_pass), 2 * type_tolerance(type), 1e-3, "against the pass");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NormalisedBySums, testing::Values(DType::f16, DType::bf16));

TEST(FromSums, RefusesWhatDoesNotFit) {
  Case c;
  const TensorId sums = c.input("sums", {1, 1, 1, 4}, DType::f32, 1),
                 other = c.input("squares", {1, 1, 1, 5}, DType::f32, 2);
  const auto add = [&](std::vector<TensorId> inputs, int64_t rows) {
    c.add(Op::batch_norm_from_sums, std::move(inputs), layers({{rows, 1e-5f, 0.9f}}));
  };
  EXPECT_NO_THROW(add({sums, sums, kNoTensor, kNoTensor, kNoTensor}, 2));
  EXPECT_THROW(add({sums, sums, kNoTensor, kNoTensor, kNoTensor}, 1), Error);
  EXPECT_THROW(add({sums, other, kNoTensor, kNoTensor, kNoTensor}, 2), Error);
  EXPECT_THROW(add({sums, kNoTensor, kNoTensor, kNoTensor, kNoTensor}, 2), Error);
  EXPECT_THROW(add({sums, sums, sums, kNoTensor, kNoTensor}, 2), Error);
  EXPECT_THROW(add({sums, sums}, 2), Error);
}

}  // namespace
}  // namespace ren::test
