// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/load_batch/load_batch.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/status.h"
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
