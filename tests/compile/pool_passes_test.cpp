// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/compile/compile.h"
#include "engine/compile/reference.h"
#include "engine/ir/builder.h"
#include "small_models.h"
#include "steps.h"

namespace ren {
namespace {

using namespace test;

AttributesPtr pool(int64_t kernel, int64_t stride, int64_t pad) {
  auto a = std::make_shared<PoolAttributes>();
  a->kernel_h = a->kernel_w = kernel;
  a->stride_h = a->stride_w = stride;
  a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = pad;
  return a;
}

TensorId max_pool(ModelBuilder& m, TensorId x, const AttributesPtr& a = pool(3, 2, 1)) {
  return emit(m.builder, Op::max_pool, "maxpool", {x}, a)[0];
}

// A stem as a ResNet has it, and something behind it.
Graph finish(ModelBuilder& m, TensorId pooled) {
  return m.finish(m.linear(m.global_mean(m.relu(m.conv(pooled, 6, 3, 1))), 4));
}
Graph stem(const AttributesPtr& a = pool(3, 2, 1)) {
  ModelBuilder m(3, 9, 3);
  return finish(m, max_pool(m, m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1))), a));
}

TrainingSpec on_gpu(Precision precision) {
  TrainingSpec spec = mixed_on_gpu();
  spec.precision = precision;
  return spec;
}

Graph compiled(const Graph& model, const TrainingSpec& spec = mixed_on_gpu(), Role role = Role::step) {
  return compile_variant(model, spec, {role, 3});
}

const Node& only_pool(const Graph& graph) {
  const auto is_pool = [](const Node& n) { return n.op == Op::max_pool; };
  EXPECT_EQ(std::count_if(graph.nodes.begin(), graph.nodes.end(), is_pool), 1);
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(), is_pool);
}

bool computes(const Graph& graph) { return only_pool(graph).as<PoolAttributes>().computes(); }

TEST(ComputeInPools, ChangesNoResultAndStoresNoValue) {
  const auto graphs = graphs_after_passes(stem(), mixed_on_gpu());
  const Graph &before = graphs.at("fuse"), &after = graphs.at("compute_in_pools");
  ASSERT_FALSE(computes(before));
  ASSERT_TRUE(computes(after));
  EXPECT_EQ(after.nodes.size() + 1, before.nodes.size());
  const TensorId value = only_pool(before).inputs[0];
  for (const Node& node : after.nodes)
    for (const auto* ids : {&node.inputs, &node.outputs})
      EXPECT_EQ(std::count(ids->begin(), ids->end(), value), 0) << node.name;
  expect_same_gradients(before, after, 0);
  // In double either way; the variance comes from other sums then.
  expect_same_gradients(before, graphs.at("statistics_from_sums"), 1e-12);
  ReferenceRun run(after);
  fill(run, after);
  run_forward_backward(run, after);
  const std::vector<double>& gradient = run.family(0, Region::G);
  EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](double g) { return std::abs(g) > 1e-3; }));
}

// What the pool computes it computes from the convolution's sums, whose node of statistics is gone with it.
TEST(ComputeInPools, StatisticsComeFromSumsThereToo) {
  const Graph graph = compiled(stem());
  for (const Node& node : graph.nodes) EXPECT_NE(node.op, Op::batch_norm_statistics);
  const Node& node = only_pool(graph);
  const auto reads = [&](TensorId id) {
    return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  };
  const auto conv = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                 [&](const Node& n) { return n.op == Op::conv && reads(n.outputs[0]); });
  ASSERT_NE(conv, graph.nodes.end());
  ASSERT_EQ(conv->outputs.size(), 3u);
  EXPECT_TRUE(reads(conv->outputs[1]) && reads(conv->outputs[2]));
  std::vector<TensorType> types;
  for (const TensorId id : node.inputs) types.push_back(graph.at(id).type());
  const auto inferred = definition_of(Op::max_pool).infer(node, types);
  EXPECT_EQ(inferred[0], graph.at(node.outputs[0]).type());
  EXPECT_EQ(inferred[1], graph.at(node.outputs[1]).type());
}

TEST(ComputeInPools, InEveryRoleAndPrecisionOnGpusAlone) {
  for (const Role role : {Role::step, Role::accumulate, Role::evaluate, Role::predict})
    for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16, Precision::tf32}) {
      EXPECT_TRUE(computes(compiled(stem(), on_gpu(precision), role)));
      TrainingSpec cpu = on_gpu(precision);
      cpu.target = target_of(DeviceKind::cpu);
      EXPECT_FALSE(computes(compiled(stem(), cpu, role)));
    }
}

TEST(ComputeInPools, OnlyWhereWindowsOverlapLittle) {
  EXPECT_TRUE(computes(compiled(stem(pool(2, 2, 0)))));
  EXPECT_TRUE(computes(compiled(stem(pool(4, 2, 1)))));
  EXPECT_FALSE(computes(compiled(stem(pool(5, 2, 2)))));
  EXPECT_FALSE(computes(compiled(stem(pool(3, 1, 1)))));
}

TEST(ComputeInPools, NotWhatAnotherNodeReads) {
  ModelBuilder m(3, 9, 3);
  const TensorId value = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId both = m.add(max_pool(m, value), m.conv(value, 8, 3, 2));
  EXPECT_FALSE(computes(compiled(finish(m, both))));
}

// Backward asks where the value is above the constant, for which it would have to read all of the
// convolution's result.
TEST(ComputeInPools, NotWhatBackwardReads) {
  ModelBuilder m(3, 9, 3);
  ExpressionBuilder e;
  const Expression at_least_one = e.finish({e.maximum(e.input(0), e.constant(1))}, 1);
  const TensorId value = m.pointwise("max", {m.conv(m.graph.input, 8, 3, 1)}, at_least_one);
  const Graph model = finish(m, max_pool(m, value));
  EXPECT_FALSE(computes(compiled(model)));
  EXPECT_TRUE(computes(compiled(model, mixed_on_gpu(), Role::evaluate)));
}

TEST(ComputeInPools, NotWhatIsDearOrReadsTwoLargeTensors) {
  ModelBuilder dear(3, 9, 3);
  const TensorId value = dear.tanh(dear.batch_norm(dear.conv(dear.graph.input, 8, 3, 1)));
  EXPECT_FALSE(computes(compiled(finish(dear, max_pool(dear, value)), mixed_on_gpu(), Role::evaluate)));
  ModelBuilder two(3, 9, 3);
  const TensorId sum = two.add(two.conv(two.graph.input, 8, 3, 1), two.conv(two.graph.input, 8, 3, 1));
  EXPECT_FALSE(computes(compiled(finish(two, max_pool(two, sum)), mixed_on_gpu(), Role::evaluate)));
}

TEST(ComputeInPools, NotAnOutputOfTheModel) {
  ModelBuilder m(3, 9, 3);
  const TensorId value = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  Graph model = finish(m, max_pool(m, value));
  model.outputs.push_back({"features", value});
  EXPECT_FALSE(computes(compiled(model, mixed_on_gpu(), Role::predict)));
}

TEST(ComputeInPools, EveryBatchSizeComesOutAlike) {
  std::string first;
  for (const int64_t batch : {2, 3, 5}) {
    const Graph graph = compile_variant(stem(), mixed_on_gpu(), {Role::step, batch});
    std::string ops;
    for (const Node& node : graph.nodes) ops += std::string(name_of(node.op)) + " ";
    EXPECT_TRUE(computes(graph));
    if (first.empty()) first = ops;
    EXPECT_EQ(ops, first);
  }
}

// Of convolutions without normalisation, as AlexNet and VGG have them; a bias of 1 makes some windows
// positive and some not.
Graph plain(const AttributesPtr& a = pool(3, 2, 1)) {
  ModelBuilder m(3, 9, 3);
  const TensorId first = max_pool(m, m.relu(m.conv(m.graph.input, 8, 3, 1, true)), a);
  return finish(m, max_pool(m, m.relu(m.conv(first, 8, 3, 1, true)), pool(2, 2, 0)));
}

// The pools whose input is a ReLU's value, and those whose output goes into one alone.
struct Order {
  int relu_first = 0, pool_first = 0;
};
Order order_of(const Graph& graph) {
  Order order;
  for (const Node& a : graph.nodes)
    for (const Node& b : graph.nodes) {
      if (a.phase != Phase::forward || b.phase != Phase::forward || a.outputs.empty()) continue;
      const bool feeds = std::find(b.inputs.begin(), b.inputs.end(), a.outputs[0]) != b.inputs.end();
      order.relu_first += feeds && a.op == Op::pointwise && b.op == Op::max_pool;
      order.pool_first += feeds && a.op == Op::max_pool && b.op == Op::pointwise;
    }
  return order;
}

TEST(ReluBehindPools, ChangesNoResult) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    TrainingSpec spec = float_images();
    spec.target = target_of(device);
    const auto graphs = graphs_after_passes(plain(), spec);
    EXPECT_EQ(order_of(graphs.at("absorb_bias")).relu_first, 2);
    EXPECT_EQ(order_of(graphs.at("relu_behind_pools")).relu_first, 0);
    EXPECT_EQ(order_of(graphs.at("relu_behind_pools")).pool_first, 2);
    const Graph& after = graphs.at("update");
    // The same model with the ReLUs where they were: no pass touches them where another node reads them, too.
    Graph kept = plain();
    for (const Node& node : kept.nodes)
      if (node.op == Op::pointwise) kept.at(node.outputs[0]).keep = true;
    const Graph before = compile_variant(kept, spec, {Role::step, 3});
    ASSERT_EQ(order_of(before).relu_first, 2);
    expect_same_gradients(before, after, 0);
    ReferenceRun run(after);
    fill(run, after);
    run_forward_backward(run, after);
    const std::vector<double>& gradient = run.family(0, Region::G);
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](double g) { return std::abs(g) > 1e-3; }));
  }
}

TEST(ReluBehindPools, OnlyWhereThatSavesWork) {
  const auto moved = [](const Graph& model, const TrainingSpec& spec = float_images(),
                        Role role = Role::step) {
    return order_of(compile_variant(model, spec, {role, 3})).pool_first;
  };
  EXPECT_EQ(moved(plain()), 2);
  EXPECT_EQ(moved(plain(pool(3, 1, 1))), 1);  // as many values behind it as before
  EXPECT_EQ(moved(stem()), 0);                // one pass with the normalisation
  EXPECT_EQ(moved(plain(), float_images(), Role::evaluate), 2);
  EXPECT_EQ(moved(plain(), mixed_on_gpu()), 2);
  EXPECT_EQ(moved(plain(), mixed_on_gpu(), Role::evaluate), 0);  // the pools compute it
  ModelBuilder m(3, 9, 3);
  const TensorId value = m.relu(m.conv(m.graph.input, 8, 3, 1));
  const Graph branches = finish(m, m.conv(m.add(max_pool(m, value), m.conv(value, 8, 3, 2)), 8, 3, 1));
  EXPECT_EQ(order_of(compile_variant(branches, float_images(), {Role::step, 3})).relu_first, 1);
  ModelBuilder other(3, 9, 3);
  const TensorId tanh = other.tanh(other.conv(other.graph.input, 8, 3, 1));
  EXPECT_EQ(moved(finish(other, max_pool(other, tanh))), 0);
}

// A ReLU goes behind all of the pools in a row.
TEST(ReluBehindPools, GoesBehindTheLastPool) {
  ModelBuilder m(3, 9, 3);
  const TensorId value = m.relu(m.conv(m.graph.input, 8, 3, 1));
  const Graph model = finish(m, max_pool(m, max_pool(m, value), pool(2, 2, 0)));
  const Order order = order_of(compile_variant(model, float_images(), {Role::step, 3}));
  EXPECT_EQ(order.relu_first, 0);
  EXPECT_EQ(order.pool_first, 1);
}

}  // namespace
}  // namespace ren
