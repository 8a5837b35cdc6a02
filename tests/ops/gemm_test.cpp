// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/status.h"
#include "harness.h"

namespace ren::test {
namespace {

struct Product {
  int64_t rows, columns, inner;
  bool transpose_a, transpose_b, bias;
  float alpha;
};

class Gemm : public testing::TestWithParam<std::tuple<Product, DType>> {};

TEST_P(Gemm, AgreesWithTheReference) {
  const auto& [p, type] = GetParam();
  Case c;
  const Shape a = p.transpose_a ? Shape{p.inner, 1, 1, p.rows} : Shape{p.rows, 1, 1, p.inner};
  const Shape b = p.transpose_b ? Shape{p.columns, 1, 1, p.inner} : Shape{p.inner, 1, 1, p.columns};
  auto attributes = std::make_shared<GemmAttributes>();
  attributes->transpose_a = p.transpose_a;
  attributes->transpose_b = p.transpose_b;
  attributes->alpha = p.alpha;
  attributes->out_follows_a = !p.transpose_a;  // weight gradients are FP32
  const TensorId x = c.input("a", a, type, 1), w = c.input("b", b, type, 2);
  const TensorId bias = p.bias ? c.input("bias", {1, 1, 1, p.columns}, type, 3) : kNoTensor;
  const TensorId y = c.add(Op::gemm, {x, w, bias}, attributes)[0];
  EXPECT_EQ(c.graph.at(y).shape, (Shape{p.rows, 1, 1, p.columns}));
  EXPECT_EQ(c.graph.at(y).dtype, p.transpose_a ? DType::f32 : type);
  const auto wanted = c.run_reference(), found = c.run_cpu();
  // Products of numbers up to 1: their sum is about sqrt(inner).
  const double scale = std::abs(double(p.alpha)) * 0.5 * std::sqrt(double(p.inner)) + 0.1;
  expect_close(found.at(y), wanted.at(y), sum_tolerance(p.inner) + type_tolerance(c.graph.at(y).dtype), scale,
               "y");
  EXPECT_EQ(c.engine_of(0).find("ref"), std::string::npos) << c.engine_of(0);
}

std::vector<Product> products() {
  return {{1, 1, 1, false, false, false, 1},     {5, 10, 84, false, true, true, 1},
          {128, 10, 512, false, true, true, 1},  {7, 33, 65, true, false, false, 1},
          {10, 512, 128, true, false, false, 1}, {1, 1000, 2048, false, true, true, 1},
          {31, 17, 9, true, true, true, 1},      {6, 5, 40, false, false, true, 0.5f},
          {6, 5, 40, false, true, false, -2.0f}, {4, 3, 2, false, false, true, 0.0f}};
}

INSTANTIATE_TEST_SUITE_P(All, Gemm,
                         testing::Combine(testing::ValuesIn(products()),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)));

TEST(GemmInfer, RowsAreAllPixels) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), w = c.input("w", {6, 1, 1, 5}, DType::f32, 2);
  auto attributes = std::make_shared<GemmAttributes>();
  attributes->transpose_b = true;
  EXPECT_EQ(c.graph.at(c.add(Op::gemm, {x, w}, attributes)[0]).shape, (Shape{2, 3, 4, 6}));
}

TEST(GemmInfer, SaysWhichExtentsDiffer) {
  Case c;
  const TensorId x = c.input("x", {2, 1, 1, 5}, DType::f32, 1), w = c.input("w", {6, 1, 1, 4}, DType::f32, 2);
  auto attributes = std::make_shared<GemmAttributes>();
  attributes->transpose_b = true;
  try {
    c.add(Op::gemm, {x, w}, attributes);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("inner extents 5 and 4"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ren::test
