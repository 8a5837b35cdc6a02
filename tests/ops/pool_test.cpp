// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pool/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "harness.h"

namespace ren::test {
namespace {

PoolAttributes square(int64_t kernel, int64_t stride, int64_t pad, bool ceil = false, bool include = false) {
  PoolAttributes a;
  a.kernel_h = a.kernel_w = kernel;
  a.stride_h = a.stride_w = stride;
  a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = pad;
  a.ceil_mode = ceil;
  a.count_include_pad = include;
  return a;
}

PoolAttributes uneven(bool include) {
  PoolAttributes a;
  a.kernel_h = 3;
  a.kernel_w = 2;
  a.stride_h = 2;
  a.pad_bottom = a.pad_right = 1;
  a.count_include_pad = include;
  return a;
}

PoolAttributes dilated() {
  PoolAttributes a = square(3, 2, 1);
  a.dilation_h = 2;
  a.dilation_w = 3;
  return a;
}

struct Geometry {
  Shape x;
  PoolAttributes a;
};

std::vector<Geometry> geometries() {
  return {{{2, 8, 8, 16}, square(2, 2, 0)},
          {{2, 9, 7, 5}, square(3, 2, 1)},
          {{1, 9, 9, 3}, square(4, 4, 2, true)},
          {{1, 2, 2, 4}, square(3, 3, 1, true)},
          {{2, 6, 6, 300}, square(3, 1, 1)},
          {{2, 7, 8, 9}, uneven(false)},
          {{2, 7, 8, 9}, uneven(true)},
          {{1, 11, 13, 6}, dilated()},
          {{2, 20, 20, 3}, square(17, 3, 8)},
          {{1, 1, 7, 4}, square(1, 1, 0)},
          {{3, 10, 10, 7}, square(3, 2, 1, true, true)}};
}

class Pool : public testing::TestWithParam<std::tuple<Geometry, DType>> {};

TEST_P(Pool, MaxAgreesWithTheReference) {
  const auto& [g, type] = GetParam();
  Case c;
  // Few distinct values, so that ties are frequent.
  Values values = random_integers(g.x.elements(), 1, 6);
  const TensorId x = c.input("x", g.x, type, values);
  const auto shared = std::make_shared<PoolAttributes>(g.a);
  const auto out = c.add(Op::max_pool, {x}, shared);
  const TensorId dy = c.input("dy", c.graph.at(out[0]).shape, type, 2);
  const TensorId dx = c.add(Op::max_pool_backward, {dy, out[1], x}, shared)[0];
  const auto wanted = c.run_reference(), found = c.run_cpu();
  EXPECT_EQ(found.at(out[0]), wanted.at(out[0]));
  EXPECT_EQ(found.at(out[1]), wanted.at(out[1]));
  // At most kernel^2 gradients meet in one element.
  expect_close(found.at(dx), wanted.at(dx), type_tolerance(type) + sum_tolerance(g.a.kernel_h * g.a.kernel_w),
               1, "dx");
}

TEST_P(Pool, AverageAgreesWithTheReference) {
  const auto& [g, type] = GetParam();
  Case c;
  const TensorId x = c.input("x", g.x, type, 1);
  const auto shared = std::make_shared<PoolAttributes>(g.a);
  const TensorId y = c.add(Op::average_pool, {x}, shared)[0];
  const TensorId dy = c.input("dy", c.graph.at(y).shape, type, 2);
  const TensorId dx = c.add(Op::average_pool_backward, {dy, x}, shared)[0];
  const auto wanted = c.run_reference(), found = c.run_cpu();
  const double tolerance = type_tolerance(type) + sum_tolerance(g.a.kernel_h * g.a.kernel_w);
  expect_close(found.at(y), wanted.at(y), tolerance, 0.5, "y");
  expect_close(found.at(dx), wanted.at(dx), tolerance, 0.5, "dx");
}

INSTANTIATE_TEST_SUITE_P(All, Pool,
                         testing::Combine(testing::ValuesIn(geometries()),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)));

// Both ways of running one pooling; the CPU's must equal the reference's here.
Values run_both(Op op, Shape shape, Values values, const PoolAttributes& a, Shape* out = nullptr) {
  Case c;
  const TensorId x = c.input("x", shape, DType::f32, std::move(values));
  const TensorId y = c.add(op, {x}, std::make_shared<PoolAttributes>(a))[0];
  if (out) *out = c.graph.at(y).shape;
  const auto wanted = c.run_reference(), found = c.run_cpu();
  expect_close(found.at(y), wanted.at(y), 4 * 0x1p-24, 0, "y");  // a few additions
  return wanted.at(y);
}

// PyTorch: AvgPool2d(3, 3, padding=1, ceil_mode=True) of 2x2 is 1x1, of 9x9 with (4, 4, 2) 3x3.
TEST(PoolExtents, CeilModeLikePyTorch) {
  EXPECT_EQ(pooled_extent(2, 3, 3, 1, 1, 1, true), 1);
  EXPECT_EQ(pooled_extent(9, 4, 4, 1, 2, 2, true), 3);
  EXPECT_EQ(pooled_extent(9, 4, 4, 1, 2, 2, false), 3);
  EXPECT_EQ(pooled_extent(6, 3, 2, 1, 0, 0, true), 3);
  EXPECT_EQ(pooled_extent(6, 3, 2, 1, 0, 0, false), 2);
  EXPECT_EQ(pooled_extent(112, 3, 2, 1, 1, 1, false), 56);
  EXPECT_EQ(pooled_extent(7, 3, 1, 2, 0, 0, false), 3);
  EXPECT_EQ(pooled_extent(1, 2, 2, 1, 0, 0, true), 0);
}

TEST(PoolValues, CountIncludePadDividesByTheWindow) {
  // 2x2 of ones, window 3, padding 1: 4 values of a window of 9.
  EXPECT_NEAR(run_both(Op::average_pool, {1, 2, 2, 1}, {1, 1, 1, 1}, square(3, 3, 1, true, true))[0],
              4.0 / 9.0, 1e-12);
  EXPECT_NEAR(run_both(Op::average_pool, {1, 2, 2, 1}, {1, 1, 1, 1}, square(3, 3, 1, true, false))[0], 1.0,
              1e-12);
}

// The overhang of ceil mode never counts. torch.nn.AvgPool1d(7, 3, padding=3, ceil_mode=True)
// of 1..9: the last window begins at 6 and reaches explicit padding up to 11, so 6 positions.
TEST(PoolValues, CeilModeOverhangDoesNotCount) {
  PoolAttributes a;
  a.kernel_w = 7;
  a.stride_w = 3;
  a.pad_left = a.pad_right = 3;
  a.ceil_mode = a.count_include_pad = true;
  Shape shape;
  const Values y = run_both(Op::average_pool, {1, 1, 9, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, a, &shape);
  ASSERT_EQ(shape.w, 4);
  EXPECT_NEAR(y[0], 10.0 / 7, 1e-12);
  EXPECT_NEAR(y[1], 28.0 / 7, 1e-12);
  EXPECT_NEAR(y[2], 39.0 / 7, 1e-12);
  EXPECT_NEAR(y[3], 24.0 / 6, 1e-12);
}

TEST(PoolValues, NaNWinsAndPaddingNeverDoes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Values y = run_both(Op::max_pool, {1, 2, 2, 1}, {-5, nan, -7, -6}, square(2, 2, 0));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(run_both(Op::max_pool, {1, 2, 2, 1}, {-5, -4, -7, -6}, square(3, 3, 1))[0], -4);
}

TEST(PoolValues, TheFirstMaximumTakesTheGradient) {
  Case c;
  const TensorId x = c.input("x", {1, 2, 2, 1}, DType::f32, {3, 3, 3, 3});
  const auto shared = std::make_shared<PoolAttributes>(square(2, 2, 0));
  const auto out = c.add(Op::max_pool, {x}, shared);
  const TensorId dy = c.input("dy", {1, 1, 1, 1}, DType::f32, Values{7});
  const TensorId dx = c.add(Op::max_pool_backward, {dy, out[1], x}, shared)[0];
  EXPECT_EQ(c.run_cpu().at(dx), (Values{7, 0, 0, 0}));
}

TEST(PoolInfer, RefusesWindowsOfPaddingAlone) {
  Case c;
  const TensorId x = c.input("x", {1, 4, 4, 1}, DType::f32, 1);
  EXPECT_THROW(c.add(Op::max_pool, {x}, std::make_shared<PoolAttributes>(square(2, 2, 2))), Error);
  EXPECT_THROW(c.add(Op::max_pool, {x}, std::make_shared<PoolAttributes>(square(5, 1, 0))), Error);
}

TEST(PoolInfer, LargeWindowsHaveWideIndices) {
  Case c;
  const TensorId x = c.input("x", {1, 20, 20, 1}, DType::f32, 1);
  EXPECT_EQ(c.graph.at(c.add(Op::max_pool, {x}, std::make_shared<PoolAttributes>(square(15, 1, 0)))[1]).dtype,
            DType::u8);
  EXPECT_EQ(c.graph.at(c.add(Op::max_pool, {x}, std::make_shared<PoolAttributes>(square(16, 1, 0)))[1]).dtype,
            DType::i32);
}

}  // namespace
}  // namespace ren::test
