// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compile/passes/passes.h"
#include "engine/ops/slice/slice.h"
#include "steps.h"

namespace ren::test {
namespace {

size_t count(const Graph& graph, Op op) {
  return size_t(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; }));
}

size_t windows(const Graph& graph) {
  size_t n = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::pointwise && node.op != Op::reduce) continue;
    const auto& views = node.as<ExpressionAttributes>().views;
    n +=
        size_t(std::count_if(views.begin(), views.end(), [](const OperandView& v) { return v.is_window(); }));
  }
  return n;
}

TEST(ReadWindows, TakesThePlaceOfSlices) {
  const auto graphs = graphs_after_passes(dense_block(), mixed_on_gpu());
  const Graph &before = graphs.at("spread_gradients"), &after = graphs.at("read_windows");
  // Of each concatenation's gradient. The last layer's goes to its convolution, so it is copied.
  EXPECT_EQ(count(before, Op::slice), 5u);
  EXPECT_EQ(count(after, Op::slice), 1u);
  EXPECT_EQ(windows(before), 0u);
  EXPECT_EQ(windows(after), 4u);
  expect_same_gradients(before, after, 0);  // the same numbers, read elsewhere
  // A gradient lives until its last window is read, where slices went one by one: here, where one is copied
  // all the same, that takes at most the gradient once more.
  const uint64_t gradient = 3 * 6 * 6 * 48 * 2;
  EXPECT_LE(feature_bytes(after), feature_bytes(before) + gradient);
}

TEST(ReadWindows, LeavesPiecesThatMemoryDoesNotMoveAlone) {
  const auto of = [](int64_t growth) {
    return windows(compile_variant(dense_block(growth), mixed_on_gpu(), {Role::step, 3}));
  };
  EXPECT_EQ(of(8), 2u);   // the first layer's 16
  EXPECT_EQ(of(20), 1u);  // those of 56 channels: among 36 vectors of eight aren't aligned
}

TEST(ReadWindows, IsForGpus) {
  TrainingSpec spec = mixed_on_gpu();
  spec.precision = Precision::fp32;
  EXPECT_EQ(windows(compile_variant(dense_block(), spec, {Role::step, 3})), 4u);
  spec.target = target_of(DeviceKind::cpu);
  EXPECT_EQ(windows(compile_variant(dense_block(), spec, {Role::step, 3})), 0u);
}

// A slice, read by a sum.
struct Sliced {
  Graph graph;
  TensorId from, slice, other;

  explicit Sliced(Axis axis = Axis::c, int64_t step = 1, int64_t begin = 16) {
    GraphBuilder builder(graph, Phase::backward);
    from = builder.tensor("from", {{2, 40, 5, 64}, DType::f16});
    other =
        builder.tensor("other", {{2, axis == Axis::h ? 16 : 40, 5, axis == Axis::h ? 64 : 16}, DType::f16});
    slice = emit(builder, Op::slice, "slice", {from},
                 std::make_shared<SliceAttributes>(axis, begin, 16, step))[0];
    add(slice, other);
  }
  void add(TensorId a, TensorId b) {
    GraphBuilder builder(graph, Phase::backward);
    ExpressionBuilder e;
    emit(builder, Op::pointwise, "sum", {a, b},
         std::make_shared<PointwiseAttributes>(e.finish({e.add(e.input(0), e.input(1))}, 2),
                                               std::vector<DType>{DType::f16}));
  }
  size_t read() {
    read_windows(graph, {mixed_on_gpu(), {Role::step, 2}});
    EXPECT_EQ(count(graph, Op::slice), windows(graph) == 0 ? 1u : 0u);
    return windows(graph);
  }
};

TEST(ReadWindows, OnlyOfChannelsInARow) {
  EXPECT_EQ(Sliced().read(), 1u);
  EXPECT_EQ(Sliced(Axis::h).read(), 0u);
  EXPECT_EQ(Sliced(Axis::c, 2).read(), 0u);
  EXPECT_EQ(Sliced(Axis::c, 1, 20).read(), 0u);  // eight channels would begin between vectors
}

TEST(ReadWindows, OnlyWhereEveryReaderIsAnExpression) {
  Sliced two;
  two.add(two.other, two.slice);
  EXPECT_EQ(two.read(), 2u);

  Sliced mixed;
  GraphBuilder builder(mixed.graph, Phase::backward);
  const TensorId w = builder.tensor("w", {{8, 1, 1, 16}, DType::f16});
  emit(builder, Op::conv, "reader", {mixed.slice, w}, std::make_shared<ConvAttributes>());
  EXPECT_EQ(mixed.read(), 0u);

  Sliced output;
  output.graph.outputs.push_back({"slice", output.slice});
  EXPECT_EQ(output.read(), 0u);

  Sliced kept;
  kept.graph.at(kept.slice).keep = true;
  EXPECT_EQ(kept.read(), 0u);
}

}  // namespace
}  // namespace ren::test
