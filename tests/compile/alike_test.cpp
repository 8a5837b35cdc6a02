// SPDX-License-Identifier: Apache-2.0
// Variants of one role differ in sizes alone, whatever the batch, also where it is one sample and no shape
// tells what there is once for each sample from what there is once.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/concat/concat.h"
#include "engine/ops/slice/slice.h"
#include "engine/pointwise/activations.h"
#include "steps.h"

namespace ren::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16, Precision::bf16};

void expect_alike(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    ASSERT_TRUE(x.op == y.op && x.inputs == y.inputs && x.outputs == y.outputs) << x.name << ", " << y.name;
    if (x.op == Op::reduce) {
      const auto &r = x.as<ReduceAttributes>(), &s = y.as<ReduceAttributes>();
      EXPECT_EQ(r.n, s.n) << x.name;
      EXPECT_EQ(r.c, s.c) << x.name;
    }
  }
}

void expect_alike_at_all_batch_sizes(const Graph& model) {
  TrainingSpec spec = float_images();
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const Precision precision : kPrecisions)
      for (const Role role : {Role::step, Role::evaluate, Role::predict}) {
        spec.target = target_of(device);
        spec.precision = precision;
        const auto compiled = [&](int64_t batch) { return compile_variant(model, spec, {role, batch}); };
        expect_alike(compiled(3), compiled(1));
        expect_alike(compiled(3), compiled(2));
      }
}

TensorId sigmoid(ModelBuilder& m, TensorId x) { return m.pointwise("sigmoid", {x}, activation("Sigmoid")); }

// Of MobileNetV3 and EfficientNet: the gate's gradient is a sum over pixels, and of no channel of the batch.
TEST(Alike, GatesOfOneSample) {
  ModelBuilder m(3, 6, 3);
  const TensorId x = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId gate = sigmoid(m, m.conv(m.relu(m.conv(m.global_mean(x), 8, 1, 1)), 8, 1, 1));
  const TensorId gated = m.batch_norm(m.conv(m.multiply(x, gate), 16, 1, 1));
  expect_alike_at_all_batch_sizes(m.finish(m.linear(m.global_mean(gated), 4)));
}

// A pool computes what repeats over samples and pixels; a gate doesn't.
TEST(Alike, GatesInFrontOfPools) {
  ModelBuilder m(3, 8, 3);
  const TensorId x = m.relu(m.conv(m.graph.input, 8, 3, 1));
  const TensorId gated = m.multiply(x, sigmoid(m, m.conv(m.global_mean(x), 8, 1, 1)));
  auto a = std::make_shared<PoolAttributes>();
  a->kernel_h = a->kernel_w = a->stride_h = a->stride_w = 2;
  const TensorId pooled = emit(m.builder, Op::max_pool, "pool", {gated}, a)[0];
  expect_alike_at_all_batch_sizes(m.finish(m.linear(m.global_mean(m.conv(pooled, 8, 3, 1)), 4)));
}

// A parameter has the shape of one sample's pooled values.
TEST(Alike, ParametersOfPooledValues) {
  ModelBuilder m(3, 6, 3);
  const Shape vector{1, 1, 1, 8};
  const TensorId scale = m.parameter("scale", vector, ParameterKind::scale);
  const TensorId share = m.parameter("share", vector, ParameterKind::scale);
  const TensorId shift = m.parameter("shift", vector, ParameterKind::bias);
  const TensorId pooled = m.global_mean(m.relu(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId scaled = m.multiply(m.multiply(pooled, scale), sigmoid(m, share));
  const TensorId shifted = m.batch_norm(m.add(scaled, shift), false);
  expect_alike_at_all_batch_sizes(m.finish(m.linear(m.tanh(shifted), 4)));
}

// What moves data gives the type that it is given. An average and a maximum in front of a linear layer, whose
// gradient is FP32, and pieces of a parameter.
TEST(Amp, MovedValuesKeepTheirType) {
  ModelBuilder m(3, 6, 3);
  const TensorId x = m.relu(m.conv(m.graph.input, 8, 3, 1));
  auto a = std::make_shared<PoolAttributes>();
  a->kernel_h = a->kernel_w = a->stride_h = a->stride_w = 6;
  const TensorId most = emit(m.builder, Op::max_pool, "most", {x}, a)[0];
  const TensorId both = emit(m.builder, Op::concat, "both", {m.global_mean(x), most},
                             std::make_shared<ConcatAttributes>(Axis::c))[0];
  const TensorId scales = m.parameter("scales", {1, 1, 1, 32}, ParameterKind::scale);
  const TensorId scale =
      emit(m.builder, Op::slice, "piece", {scales}, std::make_shared<SliceAttributes>(Axis::c, 16, 16))[0];
  const Graph model = m.finish(m.linear(m.multiply(both, scale), 4));
  TrainingSpec spec = mixed_on_gpu();
  const Graph plain = compile_variant(model, float_images(), {Role::step, 3});
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    spec.target = target_of(device);
    const Graph mixed = compile_variant(model, spec, {Role::step, 3});
    int moves = 0;
    for (const Node& node : mixed.nodes) {
      if (node.op != Op::concat && node.op != Op::slice && node.op != Op::slice_backward) continue;
      EXPECT_EQ(mixed.at(node.inputs[0]).dtype, mixed.at(node.outputs[0]).dtype) << node.name;
      ++moves;
    }
    EXPECT_GE(moves, device == DeviceKind::cpu ? 5 : 2);  // GPUs read pieces where they lie
    expect_same_gradients(plain, mixed, 1e-13);           // sums in another order
  }
}

}  // namespace
}  // namespace ren::test
