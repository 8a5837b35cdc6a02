// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compile/passes/passes.h"
#include "steps.h"

namespace ren::test {
namespace {

size_t spread_operands(const Node& node) {
  if (node.op != Op::pointwise && node.op != Op::reduce) return 0;
  const auto& views = node.as<ExpressionAttributes>().views;
  return size_t(std::count_if(views.begin(), views.end(), [](const OperandView& s) { return s.any(); }));
}

size_t spread_operands(const Graph& graph) {
  size_t count = 0;
  for (const Node& node : graph.nodes) count += spread_operands(node);
  return count;
}

void expect_inferred_shapes(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    std::vector<TensorType> inputs;
    for (const TensorId id : node.inputs)
      inputs.push_back(id == kNoTensor ? TensorType() : graph.at(id).type());
    const auto types = definition_of(node.op).infer(node, inputs);
    for (size_t k = 0; k < types.size(); ++k)
      if (node.outputs[k] != kNoTensor) {
        EXPECT_EQ(types[k].shape, graph.at(node.outputs[k]).shape) << node.name;
      }
  }
}

// The projection's gradient lies on the small grid, whose last row and column cover one pixel where the size
// is odd.
TEST(SpreadGradients, ChangesNoResultAndTakesNoMemory) {
  for (const int64_t size : {12, 7}) {
    const auto graphs = graphs_after_passes(block_with_projection(size), mixed_on_gpu());
    const Graph &before = graphs.at("statistics_from_sums"), &after = graphs.at("spread_gradients");
    ASSERT_EQ(after.nodes.size(), before.nodes.size());
    EXPECT_EQ(spread_operands(before), 0u);
    EXPECT_EQ(spread_operands(after), 1u);
    // The same products in the same order, and zeros.
    expect_same_gradients(before, after, 0);
    EXPECT_LE(feature_bytes(after), feature_bytes(before));
    expect_inferred_shapes(after);
  }
}

TEST(SpreadGradients, IsForGpus) {
  TrainingSpec spec = mixed_on_gpu();
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    spec.precision = precision;
    spec.target = target_of(DeviceKind::cuda);
    EXPECT_EQ(spread_operands(compile_variant(block_with_projection(), spec, {Role::step, 3})), 1u);
    spec.target = target_of(DeviceKind::cpu);
    EXPECT_EQ(spread_operands(compile_variant(block_with_projection(), spec, {Role::step, 3})), 0u);
  }
}

// The gradient of a strided convolution, added to another.
struct StridedGradient {
  Graph graph;
  TensorId gradient, other;
  std::shared_ptr<ConvAttributes> convolution = std::make_shared<ConvAttributes>();
  DType type = DType::f16;  // of the gradient

  void build(int64_t kernel = 1, int64_t channels = 16) {
    GraphBuilder builder(graph, Phase::backward);
    if (convolution->stride_h == 1) convolution->stride_h = convolution->stride_w = 2;
    const Shape image{2, 9, 8, channels};
    const TensorId x = builder.tensor("x", {image, type});
    const TensorId w = builder.tensor("w", {{24, kernel, kernel, channels}, DType::f16});
    const TensorId y = emit(builder, Op::conv, "conv", {x, w}, convolution)[0];
    const TensorId dy = builder.tensor("dy", {graph.at(y).shape, DType::f16});
    graph.nodes.clear();
    gradient = emit(builder, Op::conv_backward_data, "conv", {dy, w, x}, convolution)[0];
    other = builder.tensor("other", {image, DType::f16});
    add(gradient, other);
  }
  TensorId add(TensorId a, TensorId b) {
    GraphBuilder builder(graph, Phase::backward);
    ExpressionBuilder e;
    return emit(builder, Op::pointwise, "sum", {a, b},
                std::make_shared<PointwiseAttributes>(e.finish({e.add(e.input(0), e.input(1))}, 2),
                                                      std::vector<DType>{DType::f16}))[0];
  }
  // Operands spread; the gradient's image shrinks where any is, else stays.
  size_t spread() {
    const TrainingSpec spec = mixed_on_gpu();
    const VariantSpec variant{Role::step, 2};
    const Shape before = graph.at(gradient).shape;
    spread_gradients(graph, {spec, variant});
    const Shape &after = graph.at(gradient).shape, &grid = graph.at(graph.nodes[0].inputs[0]).shape;
    const size_t count = spread_operands(graph);
    EXPECT_EQ(after.h, count ? grid.h : before.h);
    EXPECT_EQ(after.w, count ? grid.w : before.w);
    EXPECT_EQ(graph.nodes[0].inputs.size(), count ? 2u : 3u);
    return count;
  }
};

TEST(SpreadGradients, OnlyWhereEveryReaderPutsTheZerosIn) {
  StridedGradient plain;
  plain.build();
  EXPECT_EQ(plain.spread(), 1u);

  StridedGradient rows;
  rows.convolution->stride_h = 3;
  rows.build();
  EXPECT_EQ(rows.spread(), 1u);
  EXPECT_EQ(rows.graph.nodes[1].as<PointwiseAttributes>().view(0).h, 3);
  EXPECT_EQ(rows.graph.nodes[1].as<PointwiseAttributes>().view(0).w, 1);

  StridedGradient two;
  two.build();
  two.add(two.other, two.gradient);
  EXPECT_EQ(two.spread(), 2u);

  StridedGradient mixed;  // the second reader has no expression
  mixed.build();
  GraphBuilder builder(mixed.graph, Phase::backward);
  const TensorId w = builder.tensor("w", {{8, 1, 1, 16}, DType::f16});
  emit(builder, Op::conv, "reader", {mixed.gradient, w}, std::make_shared<ConvAttributes>());
  EXPECT_EQ(mixed.spread(), 0u);

  StridedGradient twice;  // nothing else says how large the image is
  twice.build();
  twice.graph.nodes[1].inputs[1] = twice.gradient;
  EXPECT_EQ(twice.spread(), 0u);

  StridedGradient unread;
  unread.build();
  unread.graph.nodes.pop_back();
  EXPECT_EQ(unread.spread(), 0u);
}

TEST(SpreadGradients, OnlyWhatNobodyElseSees) {
  StridedGradient output;
  output.build();
  output.graph.outputs.push_back({"gradient", output.gradient});
  EXPECT_EQ(output.spread(), 0u);

  StridedGradient kept;
  kept.build();
  kept.graph.at(kept.gradient).keep = true;
  EXPECT_EQ(kept.spread(), 0u);

  StridedGradient viewed;
  viewed.build();
  viewed.graph.at(GraphBuilder(viewed.graph).tensor("view", viewed.graph.at(viewed.gradient).type()))
      .alias_of = viewed.gradient;
  EXPECT_EQ(viewed.spread(), 0u);
}

TEST(SpreadGradients, OnlyOfOnePixelWithoutPadding) {
  StridedGradient wide;
  wide.build(3);
  EXPECT_EQ(wide.spread(), 0u);

  StridedGradient padded;
  padded.convolution->pad_top = padded.convolution->pad_left = 1;
  padded.build();
  EXPECT_EQ(padded.spread(), 0u);

  StridedGradient dense;
  dense.convolution->stride_h = dense.convolution->stride_w = 2;
  dense.build();
  dense.graph.nodes[0].attributes = std::make_shared<ConvAttributes>();
  dense.graph.at(dense.graph.nodes[0].inputs[0]).shape = {2, 9, 8, 24};
  EXPECT_EQ(dense.spread(), 0u);

  StridedGradient odd;  // eight neighbours would lie in two pixels
  odd.build(1, 12);
  EXPECT_EQ(odd.spread(), 0u);

  StridedGradient other;  // it would become FP16
  other.type = DType::f32;
  other.build();
  EXPECT_EQ(other.spread(), 0u);
}

}  // namespace
}  // namespace ren::test
