// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compile/passes/passes.h"
#include "steps.h"

namespace ren::test {
namespace {

size_t count(const Graph& graph, Op op, Phase phase = Phase::forward) {
  return size_t(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                              [&](const Node& node) { return node.op == op && node.phase == phase; }));
}

size_t statistics_with_sums(const Graph& graph) {
  return size_t(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == Op::batch_norm_statistics && node.inputs.size() > kSquares;
  }));
}

// E[x^2] - E[x]^2 in place of E[(x - E[x])^2], in double precision.
constexpr double kReordered = 1e-10;

TEST(SumInConvolutions, SumsOfAConcatenationAreThoseOfItsParts) {
  const auto graphs = graphs_after_passes(dense_block(), mixed_on_gpu());
  const Graph &before = graphs.at("recompute"), &after = graphs.at("sum_in_convolutions");
  EXPECT_EQ(statistics_with_sums(before), 0u);
  EXPECT_EQ(statistics_with_sums(after), 3u);
  EXPECT_EQ(count(after, Op::concat), count(before, Op::concat) + 4);  // of sums and squares, for both
  EXPECT_EQ(count(after, Op::reduce), count(before, Op::reduce));      // convolutions made all parts
  expect_same_gradients(before, after, kReordered);
  // No pass over an activation is left for statistics.
  EXPECT_EQ(count(graphs.at("statistics_from_sums"), Op::batch_norm_statistics), 0u);
}

// Its sums serve the normalisation that reads it alone and both concatenations.
TEST(SumInConvolutions, APartOfNoConvolutionIsSummedOnce) {
  const auto graphs = graphs_after_passes(dense_block(16, true), mixed_on_gpu());
  const Graph &before = graphs.at("recompute"), &after = graphs.at("sum_in_convolutions");
  EXPECT_EQ(statistics_with_sums(after), 3u);
  EXPECT_EQ(count(after, Op::reduce), count(before, Op::reduce) + 1);
  expect_same_gradients(before, after, kReordered);
}

TEST(SumInConvolutions, AConcatenationWithoutConvolutionsKeepsItsStatistics) {
  ModelBuilder m(3, 12, 3);
  const TensorId stem = m.relu(m.conv(m.graph.input, 16, 3, 1));
  const TensorId both = m.concat({m.max_pool(stem), m.max_pool(m.tanh(stem))});
  const Graph model = m.finish(m.linear(m.global_mean(m.relu(m.batch_norm(both))), 4));
  const auto graphs = graphs_after_passes(model, mixed_on_gpu());
  EXPECT_EQ(statistics_with_sums(graphs.at("sum_in_convolutions")), 0u);
  EXPECT_EQ(count(graphs.at("update"), Op::batch_norm_statistics), 1u);
}

TEST(SumInConvolutions, IsFor16BitsOnGpus) {
  TrainingSpec spec = mixed_on_gpu();
  spec.precision = Precision::fp32;
  EXPECT_EQ(count(compile_variant(dense_block(), spec, {Role::step, 3}), Op::batch_norm_statistics), 3u);
  spec.precision = Precision::fp16;
  spec.target = target_of(DeviceKind::cpu);
  EXPECT_EQ(count(compile_variant(dense_block(), spec, {Role::step, 3}), Op::batch_norm_statistics), 3u);
}

}  // namespace
}  // namespace ren::test
