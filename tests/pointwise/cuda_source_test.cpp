// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/cuda_source.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/base/status.h"
#include "engine/pointwise/activations.h"

namespace ren {
namespace {

// That the text compiles and computes the same is tested where kernels are; here is its form.
TEST(CudaSource, OneStatementForEachPrimitive) {
  ExpressionBuilder e;
  const Value sum = e.add(e.mul(e.input(0), e.input(1)), e.constant(0.1));
  const CudaExpression text =
      cuda_expression(e.finish({e.maximum(sum, e.constant(0)), e.input(1), e.constant(2)}, 2),
                      std::vector<std::string>{"a", "b[i]"}, {}, "v");
  EXPECT_EQ(text.statements,
            "const float v0 = a * b[i];\n"
            "const float v1 = v0 + 0.1f;\n"
            "const float v2 = ren_max(v1, 0.0f);\n");
  EXPECT_EQ(text.outputs, (std::vector<std::string>{"v2", "b[i]", "2.0f"}));
}

TEST(CudaSource, LiteralsKeepTheirSignAndAreFloats) {
  const auto literal = [](double value) {
    ExpressionBuilder e;
    return cuda_expression(e.finish({e.constant(value)}, 0), {}).outputs[0];
  };
  EXPECT_EQ(literal(-1.5), "(-1.5f)");
  EXPECT_EQ(literal(3), "3.0f");
  EXPECT_EQ(literal(1e-20), "1e-20f");
  EXPECT_EQ(literal(-0.0), "(-0.0f)");
  EXPECT_EQ(literal(1.0 / 3), "0.33333334f");
  EXPECT_EQ(literal(std::numeric_limits<double>::infinity()), "__int_as_float(0x7f800000)");
  EXPECT_EQ(literal(1e300), "__int_as_float(0x7f800000)") << "beyond what a float holds";
}

TEST(CudaSource, RandomNumbersAreDrawnByTheCallGiven) {
  ExpressionBuilder e;
  const Expression expression = e.finish({e.uniform(7, false), e.uniform(8, true)}, 0);
  EXPECT_EQ(cuda_expression(expression, {}, "ren_uniform(s, n, i, ").statements,
            "const float t0 = ren_uniform(s, n, i, 7u, false);\n"
            "const float t1 = ren_uniform(s, n, i, 8u, true);\n");
  EXPECT_THROW(cuda_expression(expression, {}), Error);
}

TEST(CudaSource, EveryActivationAndGradientHasText) {
  const std::vector<std::string> names{"x", "y", "dy"};
  for (const ActivationInfo& info : activations()) {
    const CudaExpression text =
        cuda_expression(differentiate(activation(info.name), std::vector<int>{0}), names);
    EXPECT_EQ(text.outputs.size(), 1u);
    // No double slips in: every number of the text ends in f.
    EXPECT_EQ(text.statements.find("double"), std::string::npos);
  }
}

TEST(CudaSource, RefusesTooFewOperands) { EXPECT_THROW(cuda_expression(activation("Relu"), {}), Error); }

}  // namespace
}  // namespace ren
