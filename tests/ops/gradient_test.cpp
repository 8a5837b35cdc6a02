// SPDX-License-Identifier: Apache-2.0
// For every differentiable op: the backward graph that its gradient emits, run by the
// references, against central differences of its forward reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/permute/permute.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/slice/slice.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/view/view.h"
#include "harness.h"

namespace ren::test {
namespace {

class OneNode final : public GradientContext {
 public:
  OneNode(GraphBuilder& builder, const Node& node, std::vector<TensorId> output_gradients,
          std::set<size_t> wanted)
      : GradientContext(builder, node),
        output_gradients_(std::move(output_gradients)),
        wanted_(std::move(wanted)) {}

  TensorId output_gradient(size_t output) override { return output_gradients_[output]; }
  bool wants(size_t input) const override { return wanted_.count(input) != 0; }
  void set_gradient(size_t input, TensorId contribution) override {
    EXPECT_TRUE(wanted_.count(input) != 0) << "input " << input << " wants no gradient";
    EXPECT_EQ(gradients.count(input), 0u) << "input " << input << " got two contributions";
    gradients[input] = contribution;
  }

  std::map<size_t, TensorId> gradients;

 private:
  std::vector<TensorId> output_gradients_;
  std::set<size_t> wanted_;
};

// What to differentiate: one node whose inputs are made by `inputs`, and which of them count.
struct Subject {
  std::string name;
  Op op;
  std::function<std::vector<TensorId>(Case&)> inputs;
  AttributesPtr attributes;
  std::vector<size_t> differentiable;
  size_t outputs = 1;  // that gradients flow into
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

// The scalar that is differentiated: sum of dy * y, or the loss times its scale.
double objective(const Case& c, const Node& node, const std::vector<TensorId>& dy, const Values& loss_scale) {
  const auto values = c.run_reference();
  if (node.op == Op::cross_entropy) return values.at(node.outputs[0])[0] * loss_scale[0];
  double sum = 0;
  for (size_t o = 0; o < dy.size(); ++o) {
    if (dy[o] == kNoTensor) continue;
    const Values &g = values.at(dy[o]), &y = values.at(node.outputs[o]);
    for (size_t i = 0; i < g.size(); ++i) sum += g[i] * y[i];
  }
  return sum;
}

// Truncation is step^2 / 6 of a third derivative of order 10, cancellation 1e-16 * 100 / step:
// both below 1e-7 here.
constexpr double kStep = 1e-5, kTolerance = 1e-6;

void check(const Subject& subject, const std::set<size_t>& wanted) {
  Case c;
  c.builder.add_scalars();
  const TensorId scale = c.graph.scalar(Scalar::loss_scale);
  c.given[scale] = {8};
  const std::vector<TensorId> inputs = subject.inputs(c);
  c.add(subject.op, inputs, subject.attributes);
  const Node node = c.graph.nodes.back();
  std::vector<TensorId> dy(node.outputs.size(), kNoTensor);
  if (subject.op != Op::cross_entropy)
    for (size_t o = 0; o < subject.outputs; ++o)
      dy[o] = c.input("dy", c.graph.at(node.outputs[o]).shape, DType::f32, 77 + o);

  Case forward = c;
  c.builder.set_phase(Phase::backward);
  OneNode context(c.builder, node, dy, wanted);
  definition_of(subject.op).gradient(context);
  const auto values = c.run_reference();
  for (const size_t input : wanted) {
    ASSERT_EQ(context.gradients.count(input), 1u) << "no gradient of input " << input;
    const TensorId gradient = context.gradients.at(input), id = inputs[input];
    EXPECT_EQ(c.graph.at(gradient).shape, c.graph.at(id).shape);
    for (size_t i = 0; i < forward.given[id].size(); ++i) {
      const double at = forward.given[id][i];
      forward.given[id][i] = at + kStep;
      const double above = objective(forward, node, dy, c.given[scale]);
      forward.given[id][i] = at - kStep;
      const double below = objective(forward, node, dy, c.given[scale]);
      forward.given[id][i] = at;
      const double wanted_value = (above - below) / (2 * kStep);
      ASSERT_NEAR(values.at(gradient)[i], wanted_value, kTolerance * (1 + std::abs(wanted_value)))
          << "input " << input << ", element " << i;
    }
  }
}

class Gradient : public testing::TestWithParam<Subject> {};

TEST_P(Gradient, EqualsCentralDifferences) {
  const Subject& subject = GetParam();
  const std::set<size_t> all(subject.differentiable.begin(), subject.differentiable.end());
  check(subject, all);
  // What else is wanted decides which nodes are emitted.
  if (all.size() > 1)
    for (const size_t one : all) {
      check(subject, {one});
      std::set<size_t> others = all;
      others.erase(one);
      check(subject, others);
    }
}

TensorId random_input(Case& c, Shape shape) {
  return c.input("x", shape, DType::f32, 1 + c.graph.tensors.size());
}

std::function<std::vector<TensorId>(Case&)> random_inputs(std::vector<Shape> shapes) {
  return [shapes](Case& c) {
    std::vector<TensorId> ids;
    for (const Shape& s : shapes) ids.push_back(s.elements() == 0 ? kNoTensor : random_input(c, s));
    return ids;
  };
}

constexpr Shape kAbsent{0, 0, 0, 0};
constexpr Shape vector_of(int64_t c) { return {1, 1, 1, c}; }

template <typename T, typename F>
AttributesPtr made(T value, const F& change) {
  change(value);
  return std::make_shared<T>(std::move(value));
}

AttributesPtr convolution(int64_t stride, int64_t pad, int64_t groups, int64_t dilation) {
  return made(ConvAttributes(), [&](ConvAttributes& a) {
    a.stride_h = a.stride_w = stride;
    a.pad_top = a.pad_right = pad;
    a.groups = groups;
    a.dilation_h = a.dilation_w = dilation;
  });
}

AttributesPtr product(bool transpose_a, bool transpose_b, float alpha) {
  return made(GemmAttributes(), [&](GemmAttributes& a) {
    a.transpose_a = transpose_a;
    a.transpose_b = transpose_b;
    a.alpha = alpha;
  });
}

AttributesPtr pooling(int64_t kernel, int64_t stride, int64_t pad, bool ceil, bool include) {
  return made(PoolAttributes(), [&](PoolAttributes& a) {
    a.kernel_h = kernel;
    a.kernel_w = kernel;
    a.stride_h = a.stride_w = stride;
    a.pad_top = a.pad_left = pad;
    a.ceil_mode = ceil;
    a.count_include_pad = include;
  });
}

AttributesPtr padding(PadMode mode, int64_t top, int64_t left, int64_t right, int64_t channels) {
  return made(PadAttributes(), [&](PadAttributes& a) {
    a.mode = mode;
    a.top = top;
    a.left = left;
    a.right = right;
    a.c_after = channels;
    a.value = 0.5;
  });
}

AttributesPtr batch_norm(bool training) {
  return made(BatchNormAttributes(), [&](BatchNormAttributes& a) { a.training = training; });
}

AttributesPtr group_norm(int64_t groups) {
  return made(GroupNormAttributes(), [&](GroupNormAttributes& a) { a.groups = groups; });
}

AttributesPtr permutation() {
  return made(PermuteAttributes(), [](PermuteAttributes& a) {
    a.split = {2, 3, 2, 2};
    a.order = {3, 0, 2, 1};
    a.h = 2, a.w = 2, a.c = 6;
  });
}

// x, scale, bias, running mean, running variance; a positive variance.
std::function<std::vector<TensorId>(Case&)> norm_inputs(Shape x, bool scale, bool bias) {
  return [=](Case& c) {
    const Shape v = vector_of(x.c);
    return std::vector<TensorId>{random_input(c, x), scale ? random_input(c, v) : kNoTensor,
                                 bias ? random_input(c, v) : kNoTensor, random_input(c, v),
                                 c.input("variance", v, DType::f32, random_values(x.c, 5, 0.5, 2))};
  };
}

std::function<std::vector<TensorId>(Case&)> loss_inputs(Shape logits) {
  return [=](Case& c) {
    Values labels = random_integers(logits.pixels(), 3, logits.c);
    labels[1] = -100;
    return std::vector<TensorId>{random_input(c, logits),
                                 c.input("labels", {logits.n, logits.h, logits.w, 1}, DType::i32, labels),
                                 c.input("inverse_count", {}, DType::f32, Values{0.2})};
  };
}

std::function<std::vector<TensorId>(Case&)> mixed_loss_inputs(Shape logits) {
  return [=](Case& c) {
    std::vector<TensorId> inputs = loss_inputs(logits)(c);
    Values partners = random_integers(logits.pixels(), 4, logits.c);
    partners[0] = -100;
    inputs.push_back(c.input("partners", {logits.n, logits.h, logits.w, 1}, DType::i32, partners));
    inputs.push_back(c.input("own", {}, DType::f32, Values{0.3125}));
    return inputs;
  };
}

AttributesPtr loss(float smoothing) {
  return made(CrossEntropyAttributes(), [&](CrossEntropyAttributes& a) {
    a.label_smoothing = smoothing;
    a.weight = 0.7f;
  });
}

std::vector<Subject> subjects() {
  const auto conv_inputs = random_inputs({{2, 5, 4, 4}, {6, 3, 2, 2}, vector_of(6)});
  return {
      {"conv",
       Op::conv,
       random_inputs({{2, 5, 4, 3}, {4, 3, 2, 3}, vector_of(4)}),
       convolution(2, 1, 1, 1),
       {0, 1, 2}},
      {"conv_grouped", Op::conv, conv_inputs, convolution(1, 1, 2, 1), {0, 1, 2}},
      {"conv_dilated",
       Op::conv,
       random_inputs({{1, 6, 5, 2}, {2, 2, 2, 2}}),
       convolution(1, 2, 1, 2),
       {0, 1}},
      {"conv_depthwise",
       Op::conv,
       random_inputs({{1, 4, 4, 3}, {3, 3, 3, 1}}),
       convolution(1, 1, 3, 1),
       {0, 1}},
      {"conv_transposed",
       Op::conv_backward_data,
       random_inputs({{1, 2, 2, 4}, {4, 3, 2, 3}, {1, 5, 4, 3}}),
       convolution(2, 1, 1, 1),
       {0, 1}},
      {"gemm",
       Op::gemm,
       random_inputs({{3, 1, 1, 4}, {4, 1, 1, 5}, vector_of(5)}),
       product(false, false, 1),
       {0, 1, 2}},
      {"gemm_linear",
       Op::gemm,
       random_inputs({{2, 2, 1, 4}, {5, 1, 1, 4}, vector_of(5)}),
       product(false, true, 1),
       {0, 1, 2}},
      {"gemm_ta", Op::gemm, random_inputs({{4, 1, 1, 3}, {4, 1, 1, 5}}), product(true, false, 0.5f), {0, 1}},
      {"gemm_ta_tb",
       Op::gemm,
       random_inputs({{4, 1, 1, 3}, {5, 1, 1, 4}, vector_of(5)}),
       product(true, true, -2),
       {0, 1, 2}},
      {"batch_norm", Op::batch_norm, norm_inputs({3, 2, 2, 3}, true, true), batch_norm(true), {0, 1, 2}},
      {"batch_norm_bare", Op::batch_norm, norm_inputs({3, 2, 2, 3}, false, false), batch_norm(true), {0}},
      {"batch_norm_no_bias",
       Op::batch_norm,
       norm_inputs({4, 1, 1, 2}, true, false),
       batch_norm(true),
       {0, 1}},
      {"batch_norm_frozen",
       Op::batch_norm,
       norm_inputs({3, 2, 2, 3}, true, true),
       batch_norm(false),
       {0, 1, 2}},
      {"batch_norm_frozen_bare",
       Op::batch_norm,
       norm_inputs({3, 2, 2, 3}, false, false),
       batch_norm(false),
       {0}},
      {"layer_norm",
       Op::layer_norm,
       random_inputs({{2, 2, 2, 5}, vector_of(5), vector_of(5)}),
       std::make_shared<LayerNormAttributes>(),
       {0, 1, 2}},
      {"layer_norm_bare",
       Op::layer_norm,
       random_inputs({{2, 2, 1, 5}}),
       std::make_shared<LayerNormAttributes>(),
       {0}},
      {"layer_norm_bias_alone",
       Op::layer_norm,
       random_inputs({{2, 2, 1, 5}, kAbsent, vector_of(5)}),
       std::make_shared<LayerNormAttributes>(),
       {0, 2}},
      {"group_norm",
       Op::group_norm,
       random_inputs({{2, 2, 3, 6}, vector_of(6), vector_of(6)}),
       group_norm(2),
       {0, 1, 2}},
      {"group_norm_one",
       Op::group_norm,
       random_inputs({{2, 2, 2, 4}, vector_of(4), kAbsent}),
       group_norm(1),
       {0, 1}},
      {"instance_norm", Op::group_norm, random_inputs({{2, 3, 3, 3}}), group_norm(3), {0}},
      {"max_pool", Op::max_pool, random_inputs({{2, 5, 5, 2}}), pooling(3, 2, 1, false, false), {0}},
      {"max_pool_ceil", Op::max_pool, random_inputs({{1, 6, 5, 2}}), pooling(3, 2, 0, true, false), {0}},
      {"average_pool", Op::average_pool, random_inputs({{2, 5, 5, 2}}), pooling(3, 2, 1, true, false), {0}},
      {"average_pool_ceil",
       Op::average_pool,
       random_inputs({{1, 2, 2, 1}}),
       pooling(3, 3, 1, true, true),
       {0}},
      {"average_pool_include",
       Op::average_pool,
       random_inputs({{1, 4, 5, 2}}),
       pooling(2, 1, 1, false, true),
       {0}},
      {"concat_c",
       Op::concat,
       random_inputs({{2, 2, 2, 3}, {2, 2, 2, 1}, {2, 2, 2, 2}}),
       std::make_shared<ConcatAttributes>(Axis::c),
       {0, 1, 2}},
      {"concat_h",
       Op::concat,
       random_inputs({{2, 2, 2, 3}, {2, 1, 2, 3}}),
       std::make_shared<ConcatAttributes>(Axis::h),
       {0, 1}},
      {"concat_w",
       Op::concat,
       random_inputs({{2, 2, 2, 3}, {2, 2, 1, 3}}),
       std::make_shared<ConcatAttributes>(Axis::w),
       {0, 1}},
      {"slice",
       Op::slice,
       random_inputs({{2, 2, 2, 7}}),
       std::make_shared<SliceAttributes>(Axis::c, 1, 3, 2),
       {0}},
      {"slice_h",
       Op::slice,
       random_inputs({{2, 5, 2, 2}}),
       std::make_shared<SliceAttributes>(Axis::h, 2, 3),
       {0}},
      {"pad", Op::pad, random_inputs({{1, 3, 3, 2}}), padding(PadMode::constant, 2, 1, -1, 1), {0}},
      {"pad_reflect", Op::pad, random_inputs({{1, 3, 4, 2}}), padding(PadMode::reflect, 2, 3, 1, 0), {0}},
      {"pad_edge", Op::pad, random_inputs({{1, 3, 3, 2}}), padding(PadMode::edge, 2, 4, 1, 3), {0}},
      {"permute", Op::permute, random_inputs({{2, 2, 3, 4}}), permutation(), {0}},
      {"softmax",
       Op::softmax,
       random_inputs({{3, 1, 2, 5}}),
       std::make_shared<SoftmaxAttributes>(false),
       {0}},
      {"log_softmax",
       Op::softmax,
       random_inputs({{3, 1, 2, 5}}),
       std::make_shared<SoftmaxAttributes>(true),
       {0}},
      {"view", Op::view, random_inputs({{2, 2, 3, 4}}), std::make_shared<ViewAttributes>(1, 1, 24), {0}},
      {"cross_entropy", Op::cross_entropy, loss_inputs({5, 1, 1, 6}), loss(0), {0}},
      {"cross_entropy_smoothed", Op::cross_entropy, loss_inputs({2, 2, 2, 4}), loss(0.1f), {0}},
      {"cross_entropy_mixed", Op::cross_entropy, mixed_loss_inputs({5, 1, 1, 6}), loss(0.1f), {0}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, Gradient, testing::ValuesIn(subjects()),
                         [](const auto& info) { return info.param.name; });

// An op added later can't be forgotten: whatever has a gradient is checked here, or (pointwise
// and reduce) in a test of its own.
TEST(Gradients, EveryDifferentiableOpIsChecked) {
  std::set<std::string> checked{"pointwise", "reduce"};
  for (const Subject& s : subjects()) checked.insert(name_of(s.op));
  for (int op = 0; op < kOps; ++op) {
    if (definition_of(Op(op)).gradient != nullptr) {
      EXPECT_EQ(checked.count(name_of(Op(op))), 1u) << name_of(Op(op));
    }
  }
}

TEST(Gradients, NothingFlowsNothingIsEmitted) {
  for (const Subject& s : subjects()) {
    if (s.op == Op::cross_entropy) continue;  // a root
    Case c;
    const std::vector<TensorId> inputs = s.inputs(c);
    c.add(s.op, inputs, s.attributes);
    const Node node = c.graph.nodes.back();
    const size_t nodes = c.graph.nodes.size();
    OneNode context(c.builder, node, std::vector<TensorId>(node.outputs.size(), kNoTensor), {0});
    definition_of(s.op).gradient(context);
    EXPECT_EQ(c.graph.nodes.size(), nodes) << s.name;
  }
}

// The two channel sums of a batch norm's backward pass are one node: one pass over dy and x.
TEST(Gradients, BatchNormSumsOnce) {
  Case c;
  const auto inputs = norm_inputs({3, 2, 2, 3}, true, true)(c);
  c.add(Op::batch_norm, inputs, batch_norm(true));
  const Node node = c.graph.nodes.back();
  const TensorId dy = c.input("dy", {3, 2, 2, 3}, DType::f32, 9);
  OneNode context(c.builder, node, {dy, kNoTensor, kNoTensor}, {0, 1, 2});
  definition_of(Op::batch_norm).gradient(context);
  ASSERT_EQ(c.graph.nodes.size(), 3u);
  EXPECT_EQ(c.graph.nodes[1].op, Op::reduce);
  EXPECT_EQ(c.graph.nodes[1].outputs.size(), 2u);
  EXPECT_EQ(c.graph.nodes[2].op, Op::pointwise);
}

}  // namespace
}  // namespace ren::test
