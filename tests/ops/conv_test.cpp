// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/conv/conv.h"

#include <gtest/gtest.h>

#include "engine/base/status.h"
#include "harness.h"

namespace ren::test {
namespace {

struct Geometry {
  const char* name;
  Shape x;
  int64_t filters, kernel_h, kernel_w;
  ConvAttributes attributes;
  bool bias = false;
};

ConvAttributes attributes(int64_t stride, int64_t pad, int64_t groups = 1, int64_t dilation = 1) {
  ConvAttributes a;
  a.stride_h = a.stride_w = stride;
  a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = pad;
  a.groups = groups;
  a.dilation_h = a.dilation_w = dilation;
  return a;
}

ConvAttributes uneven() {
  ConvAttributes a;
  a.stride_h = 2;
  a.pad_left = 1;
  a.pad_bottom = 2;
  a.dilation_w = 2;
  return a;
}

std::vector<Geometry> geometries() {
  return {{"stem", {2, 15, 13, 3}, 24, 7, 7, attributes(2, 3), false},
          {"one_channel", {3, 9, 9, 1}, 6, 5, 5, attributes(1, 0), true},
          {"three_by_three", {2, 8, 8, 16}, 16, 3, 3, attributes(1, 1), false},
          {"odd_channels", {2, 7, 6, 5}, 7, 3, 3, attributes(1, 1), true},
          {"one_by_one", {2, 7, 7, 64}, 32, 1, 1, attributes(1, 0), false},
          {"one_by_one_stride", {2, 8, 8, 48}, 96, 1, 1, attributes(2, 0), true},
          {"grouped", {2, 9, 9, 32}, 64, 3, 3, attributes(2, 1, 4), true},
          {"resnext", {1, 7, 7, 128}, 128, 3, 3, attributes(1, 1, 32), false},
          {"odd_groups", {2, 6, 6, 6}, 9, 3, 3, attributes(1, 1, 3), true},
          {"depthwise", {2, 10, 10, 24}, 24, 3, 3, attributes(1, 1, 24), false},
          {"depthwise_stride_5x5", {2, 11, 11, 40}, 40, 5, 5, attributes(2, 2, 40), true},
          {"depthwise_odd", {1, 6, 7, 13}, 13, 3, 3, attributes(1, 1, 13), false},
          {"depthwise_multiplier", {2, 6, 6, 8}, 16, 3, 3, attributes(1, 1, 8), false},
          {"depthwise_dilated", {1, 9, 9, 16}, 16, 3, 3, attributes(1, 2, 16, 2), false},
          {"dilated", {2, 12, 12, 8}, 8, 3, 3, attributes(1, 2, 1, 2), true},
          {"uneven", {2, 9, 8, 6}, 10, 3, 2, uneven(), true},
          {"row_kernel", {2, 6, 9, 16}, 16, 1, 5, attributes(1, 0), false},
          {"same_upper_even",
           {1, 5, 5, 4},
           4,
           4,
           4,
           [] {
             ConvAttributes a;  // SAME_UPPER of an even kernel: the odd pad goes to the end
             a.pad_top = a.pad_left = 1;
             a.pad_bottom = a.pad_right = 2;
             return a;
           }(),
           false},
          {"whole_image", {3, 4, 4, 32}, 10, 4, 4, attributes(1, 0), true}};
}

class Convolution : public testing::TestWithParam<std::tuple<Geometry, DType>> {};

std::string engine_allowed(const std::string& engine) {
  return engine.find("ref") == std::string::npos ? "" : engine;
}

TEST_P(Convolution, ForwardAndBackwardAgreeWithTheReference) {
  const auto& [g, type] = GetParam();
  Case c;
  const Shape ws{g.filters, g.kernel_h, g.kernel_w, g.x.c / g.attributes.groups};
  const TensorId x = c.input("x", g.x, type, 1), w = c.input("w", ws, type, 2);
  const TensorId bias = g.bias ? c.input("bias", {1, 1, 1, g.filters}, DType::f32, 3) : kNoTensor;
  const auto shared = std::make_shared<ConvAttributes>(g.attributes);
  const TensorId y = c.add(Op::conv, {x, w, bias}, shared)[0];
  const Shape ys = c.graph.at(y).shape;
  const TensorId dy = c.input("dy", ys, type, 4);
  const TensorId dx = c.add(Op::conv_backward_data, {dy, w, x}, shared)[0];
  const TensorId dw = c.add(Op::conv_backward_weights, {x, dy, w}, shared)[0];
  const auto wanted = c.run_reference(), found = c.run_cpu();
  const int64_t taps = ws.h * ws.w * ws.c;
  // Operands are at most 1, so `terms` products sum to about sqrt(terms).
  const auto check = [&](TensorId id, int64_t terms, const char* what) {
    const double rounding = type_tolerance(c.graph.at(id).dtype);
    expect_close(found.at(id), wanted.at(id), sum_tolerance(terms) + rounding, std::sqrt(double(terms)) * 0.5,
                 what);
  };
  check(y, taps, "y");
  check(dx, taps * g.filters / (ws.c * g.attributes.groups) + taps, "dx");
  check(dw, ys.pixels(), "dw");
  for (size_t node = 0; node < 3; ++node)
    EXPECT_EQ(engine_allowed(c.engine_of(node)), "") << name_of(c.graph.nodes[node].op);
}

INSTANTIATE_TEST_SUITE_P(All, Convolution,
                         testing::Combine(testing::ValuesIn(geometries()),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

// Without x its gradient has the smallest image that gives dy: the same values, fewer zeros behind.
TEST(ConvolutionInfer, WithoutAnInputTheGradientIsTheSmallest) {
  Case c;
  auto a = std::make_shared<ConvAttributes>(attributes(2, 0));
  a->pad_top = a->pad_left = 1;
  const TensorId dy = c.input("dy", {2, 3, 2, 8}, DType::f16, 1),
                 w = c.input("w", {8, 3, 3, 4}, DType::f16, 2);
  const TensorId dx = c.add(Op::conv_backward_data, {dy, w}, a)[0];
  EXPECT_EQ(c.graph.at(dx).type(), (TensorType{{2, 6, 4, 4}, DType::f16}));
  const TensorId x = c.input("x", {2, 6, 4, 4}, DType::f16, 3);
  const TensorId same = c.add(Op::conv_backward_data, {dy, w, x}, a)[0];
  const auto wanted = c.run_reference(), found = c.run_cpu();
  EXPECT_EQ(wanted.at(dx), wanted.at(same));
  EXPECT_EQ(found.at(dx), found.at(same));

  const TensorId one = c.input("one", {2, 1, 1, 8}, DType::f16, 1);
  const TensorId pixel = c.input("pixel", {8, 1, 1, 4}, DType::f16, 2);
  EXPECT_THROW(c.add(Op::conv_backward_data, {one, pixel}, a), Error);  // nothing but padding
}

void expect_refused(const ConvAttributes& a, Shape x, Shape w, const std::string& text) {
  Case c;
  const TensorId xi = c.input("x", x, DType::f32, 1), wi = c.input("w", w, DType::f32, 2);
  try {
    c.add(Op::conv, {xi, wi}, std::make_shared<ConvAttributes>(a));
    FAIL() << "not refused: " << text;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    EXPECT_EQ(e.node(), "conv");
  }
}

TEST(ConvolutionInfer, SaysWhatIsWrong) {
  expect_refused(attributes(1, 0), {1, 8, 8, 4}, {8, 3, 3, 3}, "take 3 channels a group");
  expect_refused(attributes(1, 0, 3), {1, 8, 8, 4}, {9, 3, 3, 1}, "3 groups");
  expect_refused(attributes(1, 0), {1, 2, 2, 4}, {8, 3, 3, 4}, "does not fit into height 2");
  expect_refused(attributes(0, 0), {1, 8, 8, 4}, {8, 3, 3, 4}, "at least 1");
  Case c;
  const TensorId x = c.input("x", {1, 8, 8, 4}, DType::f32, 1), w = c.input("w", {8, 1, 1, 4}, DType::f32, 2);
  const TensorId b = c.input("b", {1, 1, 1, 4}, DType::f32, 3);
  EXPECT_THROW(c.add(Op::conv, {x, w, b}, std::make_shared<ConvAttributes>()), Error);
}

TEST(ConvolutionInfer, OutputExtents) {
  Case c;
  const TensorId x = c.input("x", {1, 7, 5, 1}, DType::f32, 1), w = c.input("w", {1, 3, 3, 1}, DType::f32, 2);
  // SAME_UPPER with stride 2 is ceil(7/2) x ceil(5/2).
  const auto y = c.add(Op::conv, {x, w}, std::make_shared<ConvAttributes>(attributes(2, 1)))[0];
  EXPECT_EQ(c.graph.at(y).shape, (Shape{1, 4, 3, 1}));
}

}  // namespace
}  // namespace ren::test
