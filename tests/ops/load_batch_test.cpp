// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/load_batch/load_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/ir/batch_mix.h"
#include "harness.h"

namespace ren::test {
namespace {

struct Batch {
  Case c;
  std::vector<TensorId> outputs;
  TensorId step;
  Values records[2], labels[2], images[2];

  Batch(Shape shape, DType source, DType target, int slot, bool with_labels = true) {
    std::vector<TensorId> inputs;
    for (int s = 0; s < 2; ++s) {
      records[s] = record(0.1f + float(s), 40 + s);
      labels[s] = random_integers(shape.n, uint64_t(s) + 5, 10);
      images[s] = source == DType::u8 ? random_integers(shape.elements(), uint64_t(s) + 9, 256)
                                      : random_values(shape.elements(), uint64_t(s) + 9);
      inputs.push_back(c.input("record", {1, 1, 1, kStepRecordBytes}, DType::u8, records[s], Region::I));
      inputs.push_back(with_labels ? c.input("labels", {shape.n, 1, 1, 1}, DType::i32, labels[s], Region::I)
                                   : kNoTensor);
      inputs.push_back(c.input("images", shape, source, images[s], Region::I));
    }
    step = c.input("step", {}, DType::i32, Values{double(6 + slot)});
    inputs.push_back(step);
    auto a = std::make_shared<LoadBatchAttributes>();
    for (int64_t i = 0; i < shape.c; ++i) {
      a->mean.push_back(100.5f + float(i));
      a->scale.push_back(1.0f / (50.0f + float(i)));
    }
    a->image_type = target;
    outputs = c.add(Op::load_batch, inputs, a);
  }

  // A step record with a learning rate and a step number in its random state.
  static Values record(float rate, int32_t step) {
    unsigned char bytes[kStepRecordBytes] = {};
    std::memcpy(bytes + record_offset(Scalar::learning_rate), &rate, 4);
    std::memcpy(bytes + record_offset(Scalar::random_state) + 8, &step, 4);
    return Values(bytes, bytes + kStepRecordBytes);
  }
};

class LoadBatch : public testing::TestWithParam<std::tuple<Shape, DType, DType, int>> {};

TEST_P(LoadBatch, AgreesWithTheReference) {
  const auto& [shape, source, target, slot] = GetParam();
  Batch b(shape, source, target, slot);
  const auto wanted = b.c.run_reference(), found = b.c.run_cpu();
  // A subtraction and a multiplication round, then the storing does. Values reach 150 / 50.
  expect_close(found.at(b.outputs[0]), wanted.at(b.outputs[0]), 2 * 0x1p-24 + type_tolerance(target), 3,
               "images");
  EXPECT_EQ(found.at(b.outputs[1]), b.labels[slot]);
  for (size_t i = 2; i < b.outputs.size(); ++i)
    EXPECT_EQ(found.at(b.outputs[i]), wanted.at(b.outputs[i])) << b.c.graph.at(b.outputs[i]).name;
  EXPECT_EQ(found.at(b.outputs[2])[0], double(0.1f + float(slot)));
  EXPECT_EQ(found.at(b.outputs.back())[2], 40 + slot);
}

INSTANTIATE_TEST_SUITE_P(All, LoadBatch,
                         testing::Combine(testing::Values(Shape{2, 5, 7, 3}, Shape{1, 1, 1, 1},
                                                          Shape{4, 28, 28, 1}, Shape{2, 33, 31, 4},
                                                          Shape{1, 2, 2, 2500}),
                                          testing::Values(DType::u8, DType::f32),
                                          testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(0, 1)));

struct Mixed {
  const char* name;
  BatchMix mix;
};
void PrintTo(const Mixed& m, std::ostream* out) { *out << m.name; }

constexpr Mixed kMixes[] = {{"mixup", {0, 0, 5, 7, 0.3f, 0.3f}},   {"other alone", {0, 0, 5, 7, 0, 0}},
                            {"own alone", {0, 0, 5, 7, 1, 1}},     {"cutmix", {1, 2, 4, 6, 0, 0.65f}},
                            {"an edge", {0, 0, 5, 1, 0, 0.85f}},   {"a corner", {3, 5, 5, 7, 0, 0.9f}},
                            {"no box", {2, 3, 2, 3, 0, 1}},        {"nothing", {}},
                            {"a mixed box", {1, 0, 3, 7, 0.5f, 1}}};

class MixedLoadBatch : public testing::TestWithParam<std::tuple<int64_t, int64_t, DType, DType, Mixed>> {};

// The pictures by the formula alone, in double.
Values mixed_pictures(const Values& x, const Shape& s, const LoadBatchAttributes& a, const BatchMix& m) {
  const auto at = [&](int64_t n, int64_t h, int64_t w, int64_t c) {
    return (x[size_t(((n * s.h + h) * s.w + w) * s.c + c)] - double(a.mean[size_t(c)])) *
           double(a.scale[size_t(c)]);
  };
  Values out;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t h = 0; h < s.h; ++h)
      for (int64_t w = 0; w < s.w; ++w)
        for (int64_t c = 0; c < s.c; ++c) {
          const bool inside = h >= m.top && h < m.bottom && w >= m.left && w < m.right;
          const double share = inside ? double(m.inside) : 1.0;
          out.push_back(share * at(n, h, w, c) + (1 - share) * at((n + s.n - 1) % s.n, h, w, c));
        }
  return out;
}

void put_mix(Batch& b, const BatchMix& mix) {
  unsigned char bytes[sizeof mix];
  std::memcpy(bytes, &mix, sizeof mix);
  for (int slot = 0; slot < 2; ++slot)
    std::copy_n(bytes, sizeof mix,
                b.c.given.at(b.c.graph.nodes[0].inputs[size_t(slot) * 3]).begin() + kMixOffset);
}

// `b` with its node replaced by one that mixes.
LoadBatchAttributes mix_batch(Batch& b, const BatchMix& mix) {
  const Node node = b.c.graph.nodes[0];
  put_mix(b, mix);
  auto a = std::make_shared<LoadBatchAttributes>(node.as<LoadBatchAttributes>());
  a->mixes = true;
  b.c.graph.nodes.clear();
  b.outputs = b.c.add(Op::load_batch, node.inputs, a);
  return *a;
}

TEST_P(MixedLoadBatch, EachSampleWithTheOneBefore) {
  const auto& [samples, channels, source, target, mixed] = GetParam();
  const Shape shape{samples, 5, 7, channels};
  Batch b(shape, source, target, 1);
  const LoadBatchAttributes a = mix_batch(b, mixed.mix);
  const auto wanted = b.c.run_reference(), found = b.c.run_cpu();
  const Values formula = mixed_pictures(b.images[1], shape, a, mixed.mix);
  // Two normalised values of at most 3, each rounded twice, their products and the sum: 2^-24 of 3 each.
  const double tolerance = 7 * 0x1p-24 + type_tolerance(target);
  expect_close(wanted.at(b.outputs[0]), formula, 1e-15, 3, "reference");
  expect_close(found.at(b.outputs[0]), formula, tolerance, 3, "images");
  Values partners = b.labels[1];
  std::rotate(partners.begin(), partners.end() - 1, partners.end());
  for (const auto& values : {wanted, found}) {
    EXPECT_EQ(values.at(b.outputs[1]), b.labels[1]);
    EXPECT_EQ(values.at(b.outputs[b.outputs.size() - 2]), partners);
    EXPECT_EQ(values.at(b.outputs.back())[0], double(mixed.mix.own));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MixedLoadBatch,
                         testing::Combine(testing::Values(1, 2, 5), testing::Values(1, 3, 2500),
                                          testing::Values(DType::u8, DType::f32),
                                          testing::Values(DType::f32, DType::bf16),
                                          testing::ValuesIn(kMixes)));

TEST(LoadBatchMix, WhatHasNoShareMayBeAnything) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const BatchMix& mix : {BatchMix{0, 0, 5, 7, 0, 0}, BatchMix{0, 0, 5, 7, 1, 1}}) {
    Batch b({2, 5, 7, 1}, DType::f32, DType::f32, 0);
    mix_batch(b, mix);
    const size_t gone = mix.inside == 1 ? 0 : 1;  // whose pixels only the other sample sees
    Values& images = b.c.given.at(b.c.graph.nodes[0].inputs[2]);
    std::fill_n(images.begin() + int64_t(gone) * 35, 35, double(infinity));
    for (const auto& values : {b.c.run_reference(), b.c.run_cpu()}) {
      const Values& out = values.at(b.outputs[0]);
      EXPECT_EQ(out[0], double(infinity));
      for (size_t i = 35; i < 70; ++i) EXPECT_TRUE(std::isfinite(out[i]));
    }
  }
}

TEST(LoadBatchMix, IsTorchvisions) {
  const auto file = SafeTensorsFile::read(REN_FIXTURES "/mix/torchvision.safetensors");
  const std::string ending = "/images";
  int cases = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.ends_with(ending)) continue;
    const std::string prefix = name.substr(0, name.size() - ending.size());
    const auto box = to_int64(file.at(prefix + "/box"));
    BatchMix mix{int32_t(box[0]), int32_t(box[1]), int32_t(box[2]), int32_t(box[3])};
    mix.own = float(to_doubles(file.at(prefix + "/own"))[0]);
    mix.inside = prefix.starts_with("mixup") ? mix.own : 0.0f;
    const auto& s = tensor.shape;
    Batch b({s[0], s[1], s[2], s[3]}, DType::u8, DType::f32, 0);
    auto a = mix_batch(b, mix);
    a.mean = {0.485f * 255, 0.456f * 255, 0.406f * 255};
    a.scale = {1 / (0.229f * 255), 1 / (0.224f * 255), 1 / (0.225f * 255)};
    b.c.graph.nodes[0].attributes = std::make_shared<LoadBatchAttributes>(a);
    const auto pictures = to_int64(file.at("pictures"));
    b.c.given.at(b.c.graph.nodes[0].inputs[2]).assign(pictures.begin(), pictures.end());
    // Values up to 2.7 on both sides: the mean's and the scale's rounding, that of x / 255, of the
    // difference, the quotient and the mixing: a dozen times 2^-24.
    expect_close(b.c.run_cpu().at(b.outputs[0]), to_doubles(tensor), 12 * 0x1p-24, 3, prefix);
    ++cases;
  }
  EXPECT_EQ(cases, 10);
}

TEST(LoadBatchInfer, MixingNeedsLabels) {
  Batch b({2, 5, 7, 3}, DType::u8, DType::f32, 0, false);
  EXPECT_THROW(mix_batch(b, {}), Error);
}

TEST(LoadBatchInfer, LabelsMayBeAbsent) {
  Batch b({2, 4, 4, 3}, DType::u8, DType::f32, 1, false);
  b.c.graph.nodes[0].outputs[1] = kNoTensor;
  const auto wanted = b.c.run_reference(), found = b.c.run_cpu();
  expect_close(found.at(b.outputs[0]), wanted.at(b.outputs[0]), 2 * 0x1p-24, 3, "images");
}

TEST(LoadBatchInfer, OneMeanAChannel) {
  Batch b({2, 4, 4, 3}, DType::u8, DType::f32, 0);
  auto a = std::make_shared<LoadBatchAttributes>();
  a->mean = {1};
  a->scale = {1};
  EXPECT_THROW(b.c.add(Op::load_batch, b.c.graph.nodes[0].inputs, a), Error);
}

}  // namespace
}  // namespace ren::test
