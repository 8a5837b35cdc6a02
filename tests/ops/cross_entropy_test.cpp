// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "harness.h"

namespace ren::test {
namespace {

struct Loss {
  Case c;
  TensorId logits, labels, count, scale;
  std::vector<TensorId> outputs;
  TensorId gradient;

  Loss(Shape shape, DType type, Values z, Values targets, CrossEntropyAttributes a, double inverse_count,
       double loss_scale = 1) {
    logits = c.input("logits", shape, type, std::move(z));
    labels = c.input("labels", {shape.n, shape.h, shape.w, 1}, DType::i32, std::move(targets));
    count = c.input("inverse_count", {}, DType::f32, Values{inverse_count});
    scale = c.input("loss_scale", {}, DType::f32, Values{loss_scale});
    const auto shared = std::make_shared<CrossEntropyAttributes>(a);
    outputs = c.add(Op::cross_entropy, {logits, labels, count}, shared);
    gradient = c.add(Op::cross_entropy_backward, {logits, labels, count, scale}, shared)[0];
  }
};

class CrossEntropy : public testing::TestWithParam<std::tuple<Shape, DType, float>> {};

TEST_P(CrossEntropy, AgreesWithTheReference) {
  const auto& [shape, type, smoothing] = GetParam();
  CrossEntropyAttributes a;
  a.label_smoothing = smoothing;
  a.weight = 0.3f;
  a.gradient_type = type;
  a.ignore_index = 1;
  Loss loss(shape, type, random_values(shape.elements(), 1, -8, 8),
            random_integers(shape.pixels(), 2, shape.c), a, 1.0 / double(shape.pixels()), 1024);
  const auto wanted = loss.c.run_reference(), found = loss.c.run_cpu();
  // exp and the difference in its argument round to 2^-24 of at most 16; sums are in double.
  const double tolerance = 16 * 0x1p-24;
  expect_close(found.at(loss.outputs[0]), wanted.at(loss.outputs[0]), tolerance, 1, "loss");
  EXPECT_EQ(found.at(loss.outputs[1]), wanted.at(loss.outputs[1]));
  EXPECT_EQ(found.at(loss.outputs[2]), wanted.at(loss.outputs[2]));
  const double scale = 0.3 * 1024 / double(shape.pixels());
  expect_close(found.at(loss.gradient), wanted.at(loss.gradient), tolerance + type_tolerance(type),
               type == DType::f16 ? scale + 1 : scale, "gradient");  // f16 has subnormals below 6e-5
}

INSTANTIATE_TEST_SUITE_P(All, CrossEntropy,
                         testing::Combine(testing::Values(Shape{7, 1, 1, 10}, Shape{64, 1, 1, 1000},
                                                          Shape{2, 5, 7, 3}, Shape{1, 1, 1, 2},
                                                          Shape{300, 1, 1, 17}),
                                          testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(0.0f, 0.1f)));

Values first_logit_five() {
  Values z(10, 0.0);
  z[0] = 5;
  return z;
}

// torch.nn.functional.cross_entropy spreads the smoothing over all K classes: 0.508874 here,
// where eps / (K - 1) would give 0.558874.
TEST(CrossEntropyValues, LabelSmoothingLikePyTorch) {
  CrossEntropyAttributes a;
  a.label_smoothing = 0.1f;
  Loss loss({1, 1, 1, 10}, DType::f32, first_logit_five(), {0}, a, 1);
  EXPECT_NEAR(loss.c.run_reference().at(loss.outputs[0])[0], 0.508874, 1e-6);
  EXPECT_NEAR(loss.c.run_cpu().at(loss.outputs[0])[0], 0.508874, 1e-6);
}

TEST(CrossEntropyValues, EqualLogitsGiveTheLogarithmOfTheClasses) {
  CrossEntropyAttributes a;
  a.label_smoothing = 0.1f;
  Loss loss({3, 1, 1, 10}, DType::f32, Values(30, 4.0), {0, 5, 9}, a, 1.0 / 3);
  EXPECT_NEAR(loss.c.run_cpu().at(loss.outputs[0])[0], std::log(10.0), 1e-6);
  // Among ties the lower class comes first.
  EXPECT_EQ(loss.c.run_cpu().at(loss.outputs[1])[0], 1);
  EXPECT_EQ(loss.c.run_cpu().at(loss.outputs[2])[0], 1);
}

TEST(CrossEntropyValues, LargeLogitsDoNotOverflow) {
  Loss loss({1, 1, 1, 3}, DType::f32, {1e4, -1e4, 0}, {2}, {}, 1);
  const auto found = loss.c.run_cpu();
  EXPECT_EQ(found.at(loss.outputs[0])[0], 1e4);
  EXPECT_EQ(found.at(loss.gradient), (Values{1, 0, -1}));
}

TEST(CrossEntropyValues, IgnoredRowsCountNowhere) {
  CrossEntropyAttributes a;
  a.label_smoothing = 0.1f;
  Values z = first_logit_five();
  z.insert(z.end(), 10, 3.0);
  Loss loss({2, 1, 1, 10}, DType::f32, z, {0, -100}, a, 1);
  const auto found = loss.c.run_cpu();
  EXPECT_NEAR(found.at(loss.outputs[0])[0], 0.508874, 1e-6);
  EXPECT_EQ(found.at(loss.outputs[2])[0], 1);
  for (size_t i = 10; i < 20; ++i) EXPECT_EQ(found.at(loss.gradient)[i], 0);
}

TEST(CrossEntropyValues, LabelsOutOfRangeAreLoud) {
  for (const double label : {10.0, -1.0}) {
    Loss loss({2, 1, 1, 10}, DType::f32, random_values(20, 1), {label, 3}, {}, 0.5);
    for (const auto& values : {loss.c.run_reference(), loss.c.run_cpu()})
      EXPECT_TRUE(std::isnan(values.at(loss.outputs[0])[0])) << label;
  }
}

TEST(CrossEntropyValues, NaNLogitsAreNeverRight) {
  Values z = random_values(10, 1);
  z[4] = std::numeric_limits<double>::quiet_NaN();
  Loss loss({1, 1, 1, 10}, DType::f32, z, {4}, {}, 1);
  const auto found = loss.c.run_cpu();
  EXPECT_TRUE(std::isnan(found.at(loss.outputs[0])[0]));
  EXPECT_EQ(found.at(loss.outputs[1])[0], 0);
  EXPECT_EQ(found.at(loss.outputs[2])[0], 0);
}

TEST(CrossEntropyInfer, LabelsAreOneARow) {
  Case c;
  const TensorId z = c.input("z", {4, 1, 1, 10}, DType::f32, 1), n = c.input("n", {}, DType::f32, 2);
  const TensorId labels = c.input("labels", {3, 1, 1, 1}, DType::i32, 3);
  EXPECT_THROW(c.add(Op::cross_entropy, {z, labels, n}, std::make_shared<CrossEntropyAttributes>()), Error);
}

}  // namespace
}  // namespace ren::test
