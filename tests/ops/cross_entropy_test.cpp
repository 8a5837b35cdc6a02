// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/safetensors.h"
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

// `loss` with partners' labels and the share of a row's own one.
void mix_labels(Loss& loss, Values partners, double share) {
  const Shape shape = loss.c.graph.at(loss.labels).shape;
  const TensorId others = loss.c.input("partners", shape, DType::i32, std::move(partners));
  const TensorId own = loss.c.input("own", {}, DType::f32, Values{share});
  const AttributesPtr a = loss.c.graph.nodes[0].attributes;
  loss.c.graph.nodes.clear();
  loss.outputs = loss.c.add(Op::cross_entropy, {loss.logits, loss.labels, loss.count, others, own}, a);
  loss.gradient = loss.c.add(Op::cross_entropy_backward,
                             {loss.logits, loss.labels, loss.count, loss.scale, others, own}, a)[0];
}

// share * loss(labels) + (1 - share) * loss(partners' labels), gradients likewise, ignored labels among them.
TEST_P(CrossEntropy, OfMixedSamplesIsTheMixtureOfTwo) {
  const auto& [shape, type, smoothing] = GetParam();
  CrossEntropyAttributes a;
  a.label_smoothing = smoothing;
  a.weight = 0.3f;
  a.gradient_type = type;
  a.ignore_index = 1;
  const Values z = random_values(shape.elements(), 1, -8, 8);
  const Values labels = random_integers(shape.pixels(), 2, shape.c),
               others = random_integers(shape.pixels(), 3, shape.c);
  const double count = 1.0 / double(shape.pixels()), scale = 0.3 * 1024 * count;
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    Loss mixed(shape, type, z, labels, a, count, 1024), own(shape, type, z, labels, a, count, 1024),
        other(shape, type, z, others, a, count, 1024);
    mix_labels(mixed, others, share);
    const auto first = own.c.run_reference(), second = other.c.run_reference();
    const Values loss{share * first.at(own.outputs[0])[0] + (1 - share) * second.at(other.outputs[0])[0]};
    Values gradient = first.at(own.gradient);
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = share * gradient[i] + (1 - share) * second.at(other.gradient)[i];
    const auto& judged = share >= 0.5 ? first : second;
    const auto& outputs = share >= 0.5 ? own.outputs : other.outputs;
    const double tolerance = 16 * 0x1p-24;  // as above
    for (const bool reference : {true, false}) {
      const auto found = reference ? mixed.c.run_reference() : mixed.c.run_cpu();
      expect_close(found.at(mixed.outputs[0]), loss, reference ? 1e-14 : tolerance, 1, "loss");
      EXPECT_EQ(found.at(mixed.outputs[1]), judged.at(outputs[1])) << share;
      EXPECT_EQ(found.at(mixed.outputs[2]), judged.at(outputs[2])) << share;
      expect_close(found.at(mixed.gradient), gradient, reference ? 1e-14 : tolerance + type_tolerance(type),
                   type == DType::f16 ? scale + 1 : scale, "gradient");
    }
  }
}

TEST(CrossEntropyValues, OfMixedSamplesIsPyTorchs) {
  const auto file = SafeTensorsFile::read(REN_FIXTURES "/mix/torchvision.safetensors");
  const SafeTensor& logits = file.at("logits");
  const Shape shape{logits.shape[0], 1, 1, logits.shape[1]};
  const auto labels = to_int64(file.at("labels"));
  Values partners(labels.begin(), labels.end());
  std::rotate(partners.begin(), partners.end() - 1, partners.end());
  int cases = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.ends_with("loss") || name.ends_with("net_loss")) continue;
    const bool smooth = name.ends_with("smooth_loss");
    const std::string prefix = name.substr(0, name.find('/') + 1);
    CrossEntropyAttributes a;
    a.label_smoothing = smooth ? 0.1f : 0.0f;
    Loss loss(shape, DType::f32, to_doubles(logits), Values(labels.begin(), labels.end()), a,
              1.0 / double(shape.n));
    mix_labels(loss, partners, to_doubles(file.at(prefix + "own"))[0]);
    const auto found = loss.c.run_cpu();
    // 0.1, 1 / 5 and the share come as FP32; the loss is stored as one. It is below 6.
    expect_close(found.at(loss.outputs[0]), to_doubles(tensor), 4 * 0x1p-24, 6, name);
    expect_close(found.at(loss.gradient),
                 to_doubles(file.at(prefix + (smooth ? "smooth_dlogits" : "dlogits"))), 16 * 0x1p-24, 0.2,
                 name);
    ++cases;
  }
  EXPECT_EQ(cases, 20);
}

TEST(CrossEntropyValues, WrongLabelsOfPartnersAreLoud) {
  Loss loss({2, 1, 1, 10}, DType::f32, random_values(20, 1), {4, 3}, {}, 0.5);
  mix_labels(loss, {3, 10}, 0.5);
  for (const auto& values : {loss.c.run_reference(), loss.c.run_cpu()})
    EXPECT_TRUE(std::isnan(values.at(loss.outputs[0])[0]));
}

TEST(CrossEntropyInfer, PartnersComeWithAShare) {
  Loss loss({4, 1, 1, 10}, DType::f32, random_values(40, 1), {4, 3, 2, 1}, {}, 0.25);
  const auto a = std::make_shared<CrossEntropyAttributes>();
  const std::vector<TensorId> inputs{loss.logits, loss.labels, loss.count};
  const auto with = [&](std::vector<TensorId> more) {
    more.insert(more.begin(), inputs.begin(), inputs.end());
    return loss.c.add(Op::cross_entropy, more, a);
  };
  EXPECT_NO_THROW(with({loss.labels, loss.scale}));
  EXPECT_THROW(with({loss.labels}), Error);
  EXPECT_THROW(with({loss.labels, loss.labels}), Error);
  EXPECT_THROW(with({loss.scale, loss.scale}), Error);
}

TEST(CrossEntropyInfer, LabelsAreOneARow) {
  Case c;
  const TensorId z = c.input("z", {4, 1, 1, 10}, DType::f32, 1), n = c.input("n", {}, DType::f32, 2);
  const TensorId labels = c.input("labels", {3, 1, 1, 1}, DType::i32, 3);
  EXPECT_THROW(c.add(Op::cross_entropy, {z, labels, n}, std::make_shared<CrossEntropyAttributes>()), Error);
}

}  // namespace
}  // namespace ren::test
