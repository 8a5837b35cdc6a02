// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/batch_norm/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "harness.h"

namespace ren::test {
namespace {

std::shared_ptr<BatchNormAttributes> attributes(float epsilon = 1e-5f, float keep = 0.9f) {
  auto a = std::make_shared<BatchNormAttributes>();
  a->epsilon = epsilon;
  a->keep = keep;
  return a;
}

struct Statistics {
  Case c;
  TensorId x, running_mean, running_variance;
  std::vector<TensorId> outputs;

  Statistics(Shape shape, DType type, Values values, std::shared_ptr<BatchNormAttributes> a) {
    x = c.input("x", shape, type, std::move(values));
    running_mean = c.input("mean", {1, 1, 1, shape.c}, DType::f32, 8);
    running_variance = c.input("variance", {1, 1, 1, shape.c}, DType::f32, random_values(shape.c, 9, 0.5, 2));
    outputs = c.add(Op::batch_norm_statistics, {x, running_mean, running_variance}, a);
  }
};

class BatchStatistics : public testing::TestWithParam<std::tuple<Shape, DType>> {};

TEST_P(BatchStatistics, AgreeWithTheReference) {
  const auto& [shape, type] = GetParam();
  Statistics s(shape, type, random_values(shape.elements(), 1), attributes());
  const auto wanted = s.c.run_reference(), found = s.c.run_cpu();
  // Sums are corrected for rounding and merged in double: what is left are the roundings of
  // each difference and square (some ulps of the deviation, 0.58 here) and of the FP32 result.
  const double tolerance = 8 * 0x1p-24, deviation = 0.58;
  for (const TensorId id : {s.outputs[0], s.outputs[1], s.running_mean, s.running_variance})
    expect_close(found.at(id), wanted.at(id), tolerance, deviation, s.c.graph.at(id).name);
}

INSTANTIATE_TEST_SUITE_P(All, BatchStatistics,
                         testing::Combine(testing::Values(Shape{2, 1, 1, 1}, Shape{5, 7, 3, 3},
                                                          Shape{4, 9, 9, 16}, Shape{3, 5, 5, 33},
                                                          Shape{2, 3, 3, 64}, Shape{64, 1, 1, 200},
                                                          Shape{16, 33, 31, 8}, Shape{2, 2, 2, 2048}),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)));

TEST(BatchStatisticsNumerics, LargeMeanSmallDeviation) {
  const Shape shape{8, 40, 40, 6};
  Values values =
      random_values(shape.elements(), 3, 1000 - std::sqrt(3.0), 1000 + std::sqrt(3.0));  // mean 1000, std 1
  Statistics s(shape, DType::f32, std::move(values), attributes());
  const auto wanted = s.c.run_reference(), found = s.c.run_cpu();
  // The values are given exactly, so only the kernel's own rounding counts: differences to a
  // block's mean are exact to 1 part in 2^13 of an ulp at 1000, squares to 2^-24.
  expect_close(found.at(s.outputs[0]), wanted.at(s.outputs[0]), 0x1p-23, 0, "mean");
  expect_close(found.at(s.outputs[1]), wanted.at(s.outputs[1]), 4 * 0x1p-24, 0, "inverse_std");
}

TEST(BatchStatisticsNumerics, AnOutlierComesFirst) {
  const Shape shape{1, 64, 64, 2};
  Values values = random_values(shape.elements(), 3);
  values[0] = values[1] = 10000;
  Statistics s(shape, DType::f32, std::move(values), attributes());
  const auto wanted = s.c.run_reference(), found = s.c.run_cpu();
  // Each of the 128 additions of a block rounds its sum, of which the outlier is nearly all; the
  // root halves that.
  expect_close(found.at(s.outputs[1]), wanted.at(s.outputs[1]), 64 * 0x1p-24, 0, "inverse_std");
}

TEST(BatchStatisticsNumerics, ConstantInputGivesTheInverseOfEpsilon) {
  Statistics s({4, 8, 8, 5}, DType::f32, Values(4 * 8 * 8 * 5, 3.7), attributes(1e-3f));
  const auto found = s.c.run_cpu();
  for (const double v : found.at(s.outputs[1])) EXPECT_NEAR(v, 1 / std::sqrt(1e-3), 1e-5);
}

// PyTorch: BN over 1, 2, 3, 4 with momentum 0.1 leaves a running mean of 0.25 and a running
// variance of 0.9 + 0.1 * 5/3 = 1.0667 (the biased one would be 1.025).
TEST(BatchStatisticsNumerics, RunningStatisticsFollowPyTorch) {
  Case c;
  const TensorId x = c.input("x", {4, 1, 1, 1}, DType::f32, {1, 2, 3, 4});
  const TensorId mean = c.input("mean", {1, 1, 1, 1}, DType::f32, Values{0});
  const TensorId variance = c.input("variance", {1, 1, 1, 1}, DType::f32, Values{1});
  c.add(Op::batch_norm_statistics, {x, mean, variance}, attributes());
  for (const auto& values : {c.run_reference(), c.run_cpu()}) {
    EXPECT_NEAR(values.at(mean)[0], 0.25, 1e-7);
    EXPECT_NEAR(values.at(variance)[0], 0.9 + 0.1 * 5.0 / 3.0, 1e-6);
  }
}

TEST(BatchStatisticsNumerics, ComposeToTheCompositesValues) {
  Case c;
  const TensorId x = c.input("x", {4, 1, 1, 1}, DType::f32, {1, 2, 3, 4});
  const TensorId mean = c.input("mean", {1, 1, 1, 1}, DType::f32, Values{0});
  const TensorId variance = c.input("variance", {1, 1, 1, 1}, DType::f32, Values{1});
  const TensorId y = c.add(Op::batch_norm, {x, kNoTensor, kNoTensor, mean, variance}, attributes(0))[0];
  const auto values = c.run_reference();
  // Biased variance 1.25 normalises.
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(values.at(y)[size_t(i)], (i - 1.5) / std::sqrt(1.25), 1e-12);
  EXPECT_NEAR(values.at(variance)[0], 0.9 + 0.1 * 5.0 / 3.0, 1e-7);
}

TEST(BatchStatisticsInfer, RefusesOneValueAChannel) {
  Case c;
  const TensorId x = c.input("x", {1, 1, 1, 8}, DType::f32, 1);
  EXPECT_NO_THROW(c.add(Op::batch_norm, {x}, attributes()));  // a placeholder batch is no training
  try {
    c.add(Op::batch_norm_statistics, {x}, attributes());
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Expected more than 1 value per channel"), std::string::npos)
        << e.what();
    EXPECT_EQ(e.code(), StatusCode::unsupported);
  }
}

TEST(BatchStatisticsInfer, ChecksVectors) {
  Case c;
  const TensorId x = c.input("x", {2, 2, 2, 8}, DType::f32, 1),
                 short_scale = c.input("s", {1, 1, 1, 7}, DType::f32, 2);
  EXPECT_THROW(c.add(Op::batch_norm, {x, short_scale}, attributes()), Error);
  auto frozen = attributes();
  frozen->training = false;
  EXPECT_THROW(c.add(Op::batch_norm, {x}, frozen), Error);
}

TEST(BatchStatisticsThreads, RepeatBitForBit) {
  Statistics s({16, 17, 17, 24}, DType::f32, random_values(16 * 17 * 17 * 24, 5), attributes());
  const auto first = s.c.run_cpu(), second = s.c.run_cpu();
  EXPECT_EQ(first.at(s.outputs[1]), second.at(s.outputs[1]));
  set_compute_threads(3);
  const auto three = s.c.run_cpu();
  set_compute_threads(0);
  expect_close(three.at(s.outputs[1]), first.at(s.outputs[1]), 2 * 0x1p-24, 0,
               "one ulp for another merge order");
}

}  // namespace
}  // namespace ren::test
