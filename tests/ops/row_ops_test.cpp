// SPDX-License-Identifier: Apache-2.0
// Softmax and the statistics of layer and group norm.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/status.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/softmax/softmax.h"
#include "harness.h"

namespace ren::test {
namespace {

class Rows : public testing::TestWithParam<std::tuple<Shape, DType>> {};

TEST_P(Rows, Softmax) {
  const auto& [shape, type] = GetParam();
  for (const bool log : {false, true}) {
    Case c;
    const TensorId x = c.input("x", shape, type, random_values(shape.elements(), 1, -6, 6));
    const auto shared = std::make_shared<SoftmaxAttributes>(log);
    const TensorId y = c.add(Op::softmax, {x}, shared)[0];
    // The gradient gets an y of its own, so that the rounding of the first kernel's isn't in it.
    Values exact = c.run_reference().at(y);
    const TensorId given_y = c.input("y", shape, type, exact), dy = c.input("dy", shape, type, 2);
    const TensorId dx = c.add(Op::softmax_backward, {dy, given_y}, shared)[0];
    const auto wanted = c.run_reference(), found = c.run_cpu();
    // exp within 3 ulps of an argument that is exact to 2^-24 of 12; sums are in double. Below
    // f16's smallest normal number, 6e-5, steps are 6e-8.
    const double tolerance = 16 * 0x1p-24 + type_tolerance(type), scale = log ? 1.0 : 1e-4;
    expect_close(found.at(y), wanted.at(y), tolerance, scale, log ? "log softmax" : "softmax");
    expect_close(found.at(dx), wanted.at(dx), tolerance, 1, "gradient");
  }
}

TEST_P(Rows, LayerNormStatistics) {
  const auto& [shape, type] = GetParam();
  Case c;
  const TensorId x = c.input("x", shape, type, 1);
  auto a = std::make_shared<LayerNormAttributes>();
  a->epsilon = 1e-3f;  // rows of one value have no variance
  const auto out = c.add(Op::layer_norm_statistics, {x}, a);
  const auto wanted = c.run_reference(), found = c.run_cpu();
  // As for the batch's statistics: ulps of the deviation, 0.58, and of the result.
  for (const TensorId id : out) expect_close(found.at(id), wanted.at(id), 8 * 0x1p-24, 0.58, "layer norm");
}

TEST_P(Rows, GroupNormStatistics) {
  const auto& [shape, type] = GetParam();
  for (const int64_t groups : {int64_t{1}, shape.c, shape.c % 4 == 0 ? int64_t{4} : int64_t{1}}) {
    Case c;
    const TensorId x = c.input("x", shape, type, 1);
    auto a = std::make_shared<GroupNormAttributes>();
    a->groups = groups;
    a->epsilon = 1e-3f;
    const auto out = c.add(Op::group_norm_statistics, {x}, a);
    const TensorId v = c.input("v", {shape.n, 1, 1, shape.c}, type, 2);
    const TensorId sum = c.add(Op::group_sum, {v}, a)[0];
    const auto wanted = c.run_reference(), found = c.run_cpu();
    for (const TensorId id : out) expect_close(found.at(id), wanted.at(id), 8 * 0x1p-24, 0.58, "group norm");
    expect_close(found.at(sum), wanted.at(sum), 0x1p-24, 0, "group sum");  // summed in double
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rows,
                         testing::Combine(testing::Values(Shape{2, 3, 5, 7}, Shape{5, 1, 1, 10},
                                                          Shape{2, 4, 4, 96}, Shape{3, 1, 2, 1},
                                                          Shape{1, 9, 9, 200}, Shape{2, 1, 1, 5000},
                                                          Shape{2, 17, 19, 64}),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)));

// E[x^2] - E[x]^2 in FP32 would lose all digits here.
TEST(NormStatistics, LargeMeanSmallDeviation) {
  Case c;
  const TensorId x = c.input("x", {4, 8, 8, 64}, DType::f32, random_values(4 * 8 * 8 * 64, 3, 999, 1001));
  const auto layer = c.add(Op::layer_norm_statistics, {x}, std::make_shared<LayerNormAttributes>());
  auto groups = std::make_shared<GroupNormAttributes>();
  groups->groups = 8;
  const auto group = c.add(Op::group_norm_statistics, {x}, groups);
  const auto wanted = c.run_reference(), found = c.run_cpu();
  // Values are given exactly and differences to a mean near 1000 are exact, so the squares'
  // rounding is all there is.
  for (const TensorId id : {layer[1], group[1]})
    expect_close(found.at(id), wanted.at(id), 4 * 0x1p-24, 0, "inverse");
  for (const TensorId id : {layer[0], group[0]})
    expect_close(found.at(id), wanted.at(id), 0x1p-23, 0, "mean");
}

TEST(NormInfer, GroupsDivideTheChannels) {
  Case c;
  const TensorId x = c.input("x", {1, 2, 2, 6}, DType::f32, 1);
  auto a = std::make_shared<GroupNormAttributes>();
  a->groups = 4;
  EXPECT_THROW(c.add(Op::group_norm, {x}, a), Error);
}

}  // namespace
}  // namespace ren::test
