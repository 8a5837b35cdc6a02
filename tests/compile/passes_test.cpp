// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/compile/compile.h"
#include "engine/compile/passes/passes.h"
#include "engine/compile/reference.h"
#include "engine/ops/batch_norm/from_sums.h"
#include "engine/plan/liveness.h"
#include "engine/plan/op_memory.h"
#include "steps.h"

namespace ren {
namespace {

using namespace test;

TEST(Autodiff, AgreesWithCentralDifferencesForEveryParameter) {
  const Graph graph = compile_variant(test::residual_model(3), float_images(), {Role::step, 3});
  ReferenceRun analytic(graph);
  fill(analytic, graph);
  run_forward_backward(analytic, graph);
  const double h = 1e-5;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const std::vector<double> gradient = analytic.family(int32_t(p), Region::G);
    for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 7) {
      double side[2];
      for (int s = 0; s < 2; ++s) {
        ReferenceRun moved(graph);
        fill(moved, graph);
        moved.family(int32_t(p), Region::W)[i] += s == 0 ? h : -h;
        run_forward_backward(moved, graph);
        side[s] = loss_of(moved, graph);
      }
      // Central differences in double: truncation h^2 and rounding 1e-16 / h are both near 1e-10;
      // a ReLU that flips within h would show as a far larger error and is not the case here.
      EXPECT_NEAR(gradient[i], (side[0] - side[1]) / (2 * h), 1e-7)
          << graph.parameters[p].name << "[" << i << "]";
    }
  }
}

TEST(Fuse, ChangesNoResult) {
  const auto graphs = graphs_after_passes(test::residual_model(3), float_images());
  const Graph &before = graphs.at("lower"), &after = graphs.at("update");
  EXPECT_LT(after.nodes.size(), before.nodes.size());
  expect_same_gradients(before, after, 1e-12);
}

// The mask of the ReLU behind a normalisation comes from the normalisation's input, which its gradient reads
// anyway, so backward reads the activation for the next convolution's weights alone.
TEST(Fuse, RecomputesTheMaskOfReluBehindNormalisation) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId first = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId second = m.relu(m.batch_norm(m.conv(first, 8, 3, 1)));
  const Graph graph = compile_variant(m.finish(m.linear(second, 4)), float_images(), {Role::step, 3});
  std::vector<Op> late;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::backward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == first && reads_bytes(node.op, i)) late.push_back(node.op);
  }
  EXPECT_EQ(late, std::vector<Op>{Op::conv_backward_weights});
}

// conv with bias, normalised by its own statistics: the bias leaves the convolution, the loss doesn't
// depend on it, its gradient is zero, and the running mean still moves by it.
TEST(AbsorbBias, OnlyTheRunningMeanSeesTheBias) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId normalised = m.batch_norm(m.conv(m.graph.input, 8, 3, 1, true));
  const Graph graph =
      compile_variant(m.finish(m.linear(m.relu(normalised), 4)), float_images(), {Role::step, 3});
  for (const Node& node : graph.nodes)
    if (node.op == Op::conv) {
      EXPECT_TRUE(node.inputs.size() < 3 || node.inputs[2] == kNoTensor);
    }

  const int32_t bias = 1;
  ASSERT_EQ(graph.parameters[size_t(bias)].kind, ParameterKind::bias);
  ReferenceRun with(graph), without(graph);
  fill(with, graph);
  fill(without, graph);
  for (double& b : without.value(graph.parameters[size_t(bias)].value)) b = 0;
  const std::vector<double> values = with.value(graph.parameters[size_t(bias)].value);
  run_forward_backward(with, graph);
  run_forward_backward(without, graph);
  EXPECT_EQ(loss_of(with, graph), loss_of(without, graph));
  for (const double g : with.family(bias, Region::G)) EXPECT_EQ(g, 0.0);
  const auto& moved = with.value(graph.buffers[0].value);
  const auto& kept = without.value(graph.buffers[0].value);
  // Momentum 0.1 of the new mean; double rounding only.
  for (size_t c = 0; c < moved.size(); ++c) EXPECT_NEAR(moved[c] - kept[c], 0.1 * values[c], 1e-7);
}

TEST(AbsorbBias, InferenceKeepsIt) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId normalised = m.batch_norm(m.conv(m.graph.input, 8, 3, 1, true));
  const Graph graph = compile_variant(m.finish(m.linear(normalised, 4)), float_images(), {Role::evaluate, 3});
  for (const Node& node : graph.nodes)
    if (node.op == Op::conv) {
      EXPECT_NE(node.inputs[2], kNoTensor);
    }
}

TEST(StoreInReductions, ChangesNoResult) {
  const TrainingSpec spec = mixed_on_gpu();
  const auto graphs = graphs_after_passes(test::residual_model(3), spec);
  const Graph &before = graphs.at("fuse"), &after = graphs.at("update");
  EXPECT_LT(after.nodes.size() - 4, before.nodes.size());  // the update's nodes come later
  const auto stores = [](const Node& n) {
    return n.op == Op::reduce && !n.as<ReduceAttributes>().stored.empty();
  };
  EXPECT_GT(std::count_if(after.nodes.begin(), after.nodes.end(), stores), 0);
  expect_same_gradients(before, after, 1e-12);
}

// Two plain conv-bn-relu in a row: the activation between them dies in forward and is written again.
TEST(Recompute, ChangesNoResultAndFreesMemory) {
  test::ModelBuilder m(3, 12, 3);
  const TensorId first = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId second = m.relu(m.batch_norm(m.conv(first, 8, 3, 1)));
  const Graph model = m.finish(m.linear(m.global_mean(m.relu(m.conv(second, 8, 3, 2))), 4));
  const TrainingSpec spec = mixed_on_gpu();
  const auto graphs = graphs_after_passes(model, spec);
  const Graph &before = graphs.at("store_in_reductions"), &after = graphs.at("recompute");
  ASSERT_EQ(after.nodes.size(), before.nodes.size());
  // The reference computes in double whatever the type: the very same operations.
  expect_same_gradients(before, after, 0);
  const auto last_reader = [&](const Graph& graph) {
    size_t last = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      for (size_t k = 0; k < graph.nodes[i].inputs.size(); ++k)
        if (graph.nodes[i].inputs[k] == first && reads_bytes(graph.nodes[i].op, k)) last = i;
    return last;
  };
  EXPECT_EQ(before.nodes[last_reader(before)].phase, Phase::backward);
  EXPECT_EQ(after.nodes[last_reader(after)].phase, Phase::forward);
}

// The stem's ReLU and that of the residual block: behind each the gradient comes from two sides, and the node
// that adds them reads nothing from which the sign could be recomputed.
TEST(PackMasks, ChangesNoResult) {
  const TrainingSpec spec = mixed_on_gpu();
  const auto graphs = graphs_after_passes(test::residual_model(3), spec);
  const Graph &before = graphs.at("fuse"), &after = graphs.at("update");
  const auto masks = std::count_if(after.tensors.begin(), after.tensors.end(),
                                   [](const Tensor& t) { return t.dtype == DType::b1; });
  EXPECT_EQ(masks, 2);
  // In double either way; sums may be added in another order.
  expect_same_gradients(before, after, 1e-12);
}

// One reduction masks that gradient, stores it and sums it for both.
TEST(MergeReductions, ChangesNoResult) {
  const auto graphs = graphs_after_passes(block_with_projection(), mixed_on_gpu());
  const Graph &before = graphs.at("store_in_reductions"), &after = graphs.at("merge_reductions");
  EXPECT_EQ(after.nodes.size() + 1, before.nodes.size());
  expect_same_gradients(before, after, 0);
}

// A normalisation right behind another: the sums of the first need those of the second.
TEST(MergeReductions, NotWhatTheFirstSumsGoInto) {
  ModelBuilder m(3, 6, 3);
  const TensorId x = m.relu(m.batch_norm(m.batch_norm(m.conv(m.graph.input, 8, 3, 1))));
  TensorId sum = m.conv(x, 8, 3, 1);  // four readers: their gradients' sum is stored
  for (int i = 0; i < 3; ++i) sum = m.add(sum, m.conv(x, 8, 3, 1));
  const auto graphs = graphs_after_passes(m.finish(m.linear(m.global_mean(m.tanh(sum)), 4)), mixed_on_gpu());
  const Graph &before = graphs.at("store_in_reductions"), &after = graphs.at("merge_reductions");
  EXPECT_EQ(after.nodes.size(), before.nodes.size());
  expect_same_gradients(before, after, 0);
}

// And one node makes of it what goes on into both branches.
TEST(MergePointwise, ChangesNoResultAndTakesNoMemory) {
  const auto graphs = graphs_after_passes(block_with_projection(), mixed_on_gpu());
  const Graph &before = graphs.at("merge_reductions"), &after = graphs.at("merge_pointwise");
  ASSERT_EQ(after.nodes.size() + 1, before.nodes.size());
  expect_same_gradients(before, after, 0);
  EXPECT_LE(feature_bytes(after), feature_bytes(before));
}

// Two backward nodes of x0, g and x1, g, with one between that makes `wide` of g.
struct TwoOfOneGradient {
  Graph graph;
  std::vector<TensorId> x;
  TensorId g, wide;

  TwoOfOneGradient() {
    GraphBuilder builder(graph, Phase::backward);
    const TensorType type{{2, 4, 4, 8}, DType::f16};
    for (const char* name : {"x0", "x1", "g"}) x.push_back(builder.tensor(name, type));
    g = x.back();
    add({x[0], g});
    wide = add({g, g});
    add({x[1], g});
  }
  TensorId add(const std::vector<TensorId>& operands) {
    GraphBuilder builder(graph, Phase::backward);
    ExpressionBuilder e;
    return emit(builder, Op::pointwise, "sum", operands,
                std::make_shared<PointwiseAttributes>(e.finish({e.add(e.input(0), e.input(1))}, 2),
                                                      std::vector<DType>{DType::f16}))[0];
  }
  size_t merged() {
    // The one between isn't one of them: it writes 32 bits.
    graph.at(wide).dtype = DType::f32;
    const size_t before = graph.nodes.size();
    const TrainingSpec spec = mixed_on_gpu();
    const VariantSpec variant{Role::step, 2};
    merge_pointwise(graph, {spec, variant});
    return before - graph.nodes.size();
  }
};

TEST(MergePointwise, OnlyWhatIsThereAndFreesItsPlace) {
  TwoOfOneGradient plain;
  EXPECT_EQ(plain.merged(), 1u);
  EXPECT_EQ(plain.graph.nodes[0].outputs.size(), 2u);

  TwoOfOneGradient kept;  // x1 and g stay for another reader: the early result would be one tensor more
  kept.graph.at(kept.add({kept.x[1], kept.g})).dtype = DType::f32;
  EXPECT_EQ(kept.merged(), 0u);

  TwoOfOneGradient late;  // the second reads what comes behind the first
  late.graph.nodes.back().inputs[0] = late.wide;
  EXPECT_EQ(late.merged(), 0u);
}

// Both graphs with the same numbers: what the running statistics are afterwards.
void expect_same_running_statistics(const Graph& before, const Graph& after) {
  ReferenceRun plain(before), changed(after);
  fill(plain, before);
  fill(changed, after);
  run_forward_backward(plain, before);
  run_forward_backward(changed, after);
  for (const Buffer& buffer : before.buffers) {
    const auto &a = plain.value(buffer.value), &b = changed.value(buffer.value);
    // In double either way; the variance from sums loses the digits of mean^2 / variance, below 100 here.
    for (size_t c = 0; c < a.size(); ++c) EXPECT_NEAR(a[c], b[c], 1e-13) << buffer.name;
  }
}

size_t count_of(const Graph& graph, Op op) {
  return size_t(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; }));
}

// Between a convolution and the normalisation behind it there is nothing: the latter's node reads the sums.
TEST(StatisticsFromSums, ChangesNoResult) {
  const auto graphs = graphs_after_passes(test::residual_model(3), mixed_on_gpu());
  const Graph &before = graphs.at("sum_in_convolutions"), &after = graphs.at("statistics_from_sums");
  ASSERT_EQ(count_of(before, Op::batch_norm_statistics), 3u);  // and a frozen one, which has none
  EXPECT_EQ(count_of(after, Op::batch_norm_statistics), 0u);
  ASSERT_EQ(count_of(after, Op::batch_norm_from_sums), 1u);
  EXPECT_EQ(after.nodes.size(), before.nodes.size() - 2);
  expect_same_gradients(before, after, 1e-12);  // of about 1, in double; the variance as above
  expect_same_running_statistics(before, after);
}

TEST(StatisticsFromSums, OneNodeBehindForwardServesBackwardAlone) {
  const Graph graph = compile_variant(test::residual_model(3), mixed_on_gpu(), {Role::step, 3});
  const auto joined = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [](const Node& n) { return n.op == Op::batch_norm_from_sums; });
  ASSERT_NE(joined, graph.nodes.end());
  ASSERT_NE(joined + 1, graph.nodes.end());
  EXPECT_EQ((joined + 1)->phase, Phase::backward);
  for (auto node = graph.nodes.begin(); node != joined; ++node) {
    EXPECT_EQ(node->phase, Phase::forward);
    if (node->op == Op::conv && node->outputs.size() > 1)
      for (const TensorId sums : {node->outputs[1], node->outputs[2]}) {
        EXPECT_NE(std::find(joined->inputs.begin(), joined->inputs.end(), sums), joined->inputs.end());
        const auto reads = [&](const Node& n) {
          return n.op == Op::pointwise && std::find(n.inputs.begin(), n.inputs.end(), sums) != n.inputs.end();
        };
        EXPECT_TRUE(std::any_of(node, joined, reads)) << graph.at(sums).name;
      }
  }
}

// The bias that a normalisation absorbed, a momentum and an epsilon of a layer's own go with the layer, and
// layers whose input comes from no convolution keep a pass over it.
TEST(StatisticsFromSums, LayersKeepWhatIsTheirs) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId first = m.batch_norm(m.conv(m.graph.input, 8, 3, 1, true));
  auto own = std::make_shared<BatchNormAttributes>();
  own->keep = 0.5f, own->epsilon = 0.1f;
  m.graph.nodes.back().attributes = own;
  const TensorId second = m.batch_norm(m.relu(first));
  const TensorId third = m.batch_norm(m.conv(second, 8, 1, 1));
  const auto graphs = graphs_after_passes(m.finish(m.linear(m.relu(third), 4)), mixed_on_gpu());
  const Graph &before = graphs.at("sum_in_convolutions"), &after = graphs.at("statistics_from_sums");
  EXPECT_EQ(count_of(after, Op::batch_norm_statistics), 1u);
  EXPECT_EQ(count_of(after, Op::batch_norm_from_sums), 1u);
  EXPECT_EQ(after.nodes.size(), before.nodes.size() - 1);
  expect_same_gradients(before, after, 1e-12);
  expect_same_running_statistics(before, after);
}

// Of a layer below all that is trained, nothing but the running statistics is wanted.
// They move one after the other, which joined layers don't.
TEST(StatisticsFromSums, NotWhereTwoLayersMoveTheSameStatistics) {
  ModelBuilder m(3, 6, 3);
  const TensorId once = m.batch_norm(m.conv(m.graph.input, 8, 3, 1));
  const Node norm = m.graph.nodes.back();
  std::vector<TensorId> inputs = norm.inputs;
  inputs[0] = m.conv(m.relu(once), 8, 3, 1);
  const TensorId again = emit(m.builder, Op::batch_norm, "again", inputs, norm.attributes)[0];
  const TensorId other = m.batch_norm(m.conv(m.relu(again), 8, 3, 1));
  const Graph graph =
      compile_variant(m.finish(m.linear(m.global_mean(m.relu(other)), 4)), mixed_on_gpu(), {Role::step, 3});
  const auto count = [&](Op op) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; });
  };
  EXPECT_EQ(count(Op::batch_norm_statistics), 2);
  ASSERT_EQ(count(Op::batch_norm_from_sums), 1);
  for (const Node& node : graph.nodes)
    if (node.op == Op::batch_norm_from_sums) {
      EXPECT_EQ(node.as<BatchNormFromSumsAttributes>().layers.size(), 1u);
    }
}

TEST(StatisticsFromSums, ALayerThatBackwardDoesNotReachHasNoResults) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId first = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  for (Parameter& p : m.graph.parameters) p.trainable = false;
  const TensorId second = m.relu(m.batch_norm(m.conv(first, 8, 3, 1)));
  const auto graphs = graphs_after_passes(m.finish(m.linear(second, 4)), mixed_on_gpu());
  const Graph &before = graphs.at("sum_in_convolutions"), &after = graphs.at("statistics_from_sums");
  const auto joined = std::find_if(after.nodes.begin(), after.nodes.end(),
                                   [](const Node& n) { return n.op == Op::batch_norm_from_sums; });
  ASSERT_NE(joined, after.nodes.end());
  ASSERT_EQ(joined->outputs.size(), 4u);
  for (const size_t k : {0, 1}) EXPECT_EQ(joined->outputs[k], kNoTensor);
  for (const size_t k : {2, 3}) EXPECT_NE(joined->outputs[k], kNoTensor);
  expect_same_running_statistics(before, after);
  EXPECT_LE(feature_bytes(after), feature_bytes(before) + 4096);  // the sums live longer
}

// Stochastic depth right behind a normalisation: the node also reads the random state.
TEST(StatisticsFromSums, ReadersMayDrawRandomNumbers) {
  test::ModelBuilder m(3, 6, 3);
  const TensorId normalised = m.batch_norm(m.conv(m.graph.input, 8, 3, 1));
  m.builder.add_scalars();
  ExpressionBuilder e;
  const Value kept = e.select(e.less(e.uniform(0, true), e.constant(0.8)), e.input(0), e.constant(0));
  auto drop = std::make_shared<PointwiseAttributes>(e.finish({kept}, 1));
  drop->training_only = true;
  const TensorId dropped =
      emit(m.builder, Op::pointwise, "drop", {normalised, m.graph.scalar(Scalar::random_state)}, drop)[0];
  const auto graphs = graphs_after_passes(m.finish(m.linear(dropped, 4)), mixed_on_gpu());
  const Graph &before = graphs.at("sum_in_convolutions"), &after = graphs.at("statistics_from_sums");
  ASSERT_EQ(count_of(after, Op::batch_norm_from_sums), 1u);
  expect_same_gradients(before, after, 1e-12);
  for (const Node& node : after.nodes) {
    std::vector<TensorType> types;
    for (const TensorId id : node.inputs)
      types.push_back(id == kNoTensor ? TensorType{} : after.at(id).type());
    if (node.op == Op::pointwise) {
      EXPECT_NO_THROW(definition_of(node.op).infer(node, types)) << node.name;
    }
  }
}

// CPUs have no sums, FP32 takes none, and inference has no statistics.
TEST(StatisticsFromSums, IsForMixedPrecisionOnGpusAndTraining) {
  const auto graph_of = [](Precision precision, DeviceKind device, Role role) {
    TrainingSpec spec = float_images();
    spec.precision = precision;
    spec.target = target_of(device);
    return compile_variant(test::residual_model(3), spec, {role, 3});
  };
  const Graph cpu = graph_of(Precision::fp16, DeviceKind::cpu, Role::step);
  const Graph wide = graph_of(Precision::fp32, DeviceKind::cuda, Role::step);
  for (const Graph* graph : {&cpu, &wide}) {
    EXPECT_EQ(count_of(*graph, Op::batch_norm_statistics), 3u);
    EXPECT_EQ(count_of(*graph, Op::batch_norm_from_sums), 0u);
  }
  for (const Role role : {Role::evaluate, Role::predict})
    EXPECT_EQ(count_of(graph_of(Precision::fp16, DeviceKind::cuda, role), Op::batch_norm_from_sums), 0u);
  const Graph accumulating = graph_of(Precision::fp16, DeviceKind::cuda, Role::accumulate);
  EXPECT_EQ(count_of(accumulating, Op::batch_norm_from_sums), 1u);
}

TEST(AttachInput, PadsImagesOnlyWhereConvolutionsAloneReadThem) {
  const TrainingSpec spec = mixed_on_gpu();
  const Graph padded = compile_variant(test::residual_model(3), spec, {Role::step, 3});
  EXPECT_EQ(padded.at(padded.input).shape.c, 4);
  test::ModelBuilder m(3, 6, 3);
  const TensorId seen = m.tanh(m.graph.input);
  const Graph model = m.finish(m.linear(m.conv(seen, 8, 3, 1), 4));
  const Graph plain = compile_variant(model, spec, {Role::step, 3});
  EXPECT_EQ(plain.at(plain.input).shape.c, 3);
}

TEST(Compile, IsRepeatable) {
  const Graph model = test::residual_model(3);
  EXPECT_EQ(to_string(compile_variant(model, float_images(), {Role::step, 4})),
            to_string(compile_variant(model, float_images(), {Role::step, 4})));
}

// The last batch of an epoch may have any size; a plan serves all variants, whose structure is one.
TEST(Compile, EveryBatchSizeComesOutAlike) {
  for (const bool gpu : {false, true}) {
    TrainingSpec spec = float_images();
    spec.precision = gpu ? Precision::fp16 : Precision::fp32;
    spec.target = target_of(gpu ? DeviceKind::cuda : DeviceKind::cpu);
    // The second has one pixel, where a sample's value and a channel's have one shape at batch size 1.
    test::ModelBuilder vectors(64, 6, 3);
    const TensorId hidden = vectors.linear(vectors.graph.input, 16);
    const TensorId frozen = vectors.tanh(vectors.batch_norm(hidden, false));
    const Graph second = vectors.finish(vectors.linear(vectors.relu(vectors.add(frozen, hidden)), 4));
    for (const Graph& model : {test::residual_model(64), block_with_projection(), second}) {
      const Graph full = compile_variant(model, spec, {Role::step, 64});
      for (const int64_t batch : {1, 2, 3, 7, 4096}) {
        const Graph other = compile_variant(model, spec, {Role::step, batch});
        check_same_structure({"full", Role::step, &full, nullptr}, {"other", Role::step, &other, nullptr});
      }
    }
  }
}

TEST(Compile, InferenceHasNoStatisticsAndNoGradients) {
  const Graph graph = compile_variant(test::residual_model(3), float_images(), {Role::evaluate, 5});
  for (const Node& node : graph.nodes) {
    EXPECT_NE(node.op, Op::batch_norm_statistics);
    EXPECT_NE(node.phase, Phase::backward);
  }
}

TEST(Compile, MixedPrecisionReadsCopiesAndKeepsStatisticsWide) {
  TrainingSpec spec = float_images();
  spec.precision = Precision::fp16;
  const Graph graph = compile_variant(test::residual_model(3), spec, {Role::step, 3});
  for (const Node& node : graph.nodes) {
    if (node.op == Op::conv) {
      EXPECT_EQ(graph.at(node.inputs[0]).dtype, DType::f16);
      EXPECT_EQ(graph.at(node.inputs[1]).region, Region::A);
      EXPECT_EQ(graph.at(node.outputs[0]).dtype, DType::f16);
    }
    if (node.op == Op::batch_norm_statistics) {
      EXPECT_EQ(graph.at(node.outputs[0]).dtype, DType::f32);
    }
    for (const TensorId id : node.outputs) {
      if (id != kNoTensor && graph.at(id).region == Region::G) {
        EXPECT_EQ(graph.at(id).dtype, DType::f32) << graph.at(id).name;
      }
    }
  }
}

TEST(Compile, OneValueAChannelIsRefusedByNode) {
  test::ModelBuilder m(2, 1, 3);
  const Graph model = m.finish(m.linear(m.batch_norm(m.conv(m.graph.input, 4, 1, 1)), 2));
  EXPECT_NO_THROW(compile_variant(model, float_images(), {Role::step, 2}));
  try {
    compile_variant(model, float_images(), {Role::step, 1});
    FAIL() << "a batch of one value a channel was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::unsupported);
    EXPECT_EQ(e.node(), "bn1");
  }
  EXPECT_NO_THROW(compile_variant(model, float_images(), {Role::evaluate, 1}));
}

TEST(Compile, ParameterWithoutPathToTheLossIsNotTrained) {
  test::ModelBuilder m(2, 4, 3);
  const TensorId unused = m.conv(m.graph.input, 4, 1, 1);
  m.graph.outputs.push_back({"other", unused});
  const Graph model = m.finish(m.linear(m.graph.input, 2));
  TrainingSpec spec = float_images();
  spec.loss.outputs = {{"logits", 1.0f}};
  const Graph graph = compile_variant(model, spec, {Role::step, 2});
  EXPECT_FALSE(graph.parameters[0].trainable);
  EXPECT_TRUE(graph.parameters[1].trainable);
}

// ---- Mixing ------------------------------------------------------------------------------------------

TEST(Mixing, IsInTrainingAlone) {
  TrainingSpec spec = float_images();
  spec.mix.cutmix = 1;
  for (const Role role : {Role::evaluate, Role::predict}) {
    const Graph with = compile_variant(test::residual_model(3), spec, {role, 3});
    EXPECT_EQ(to_string(with),
              to_string(compile_variant(test::residual_model(3), float_images(), {role, 3})));
  }
}

// One more load and two more operands of the loss; nothing else in the graph.
TEST(Mixing, AddsNoOperation) {
  TrainingSpec spec = float_images();
  const Graph plain = compile_variant(test::residual_model(3), spec, {Role::step, 3});
  spec.mix.mixup = 0.2;
  const Graph mixing = compile_variant(test::residual_model(3), spec, {Role::step, 3});
  ASSERT_EQ(mixing.nodes.size(), plain.nodes.size());
  for (size_t i = 0; i < plain.nodes.size(); ++i) {
    const Node &with = mixing.nodes[i], &without = plain.nodes[i];
    EXPECT_EQ(with.op, without.op);
    const bool loss = with.op == Op::cross_entropy || with.op == Op::cross_entropy_backward;
    EXPECT_EQ(with.inputs.size(), without.inputs.size() + (loss ? 2 : 0));
    EXPECT_EQ(with.outputs.size(), without.outputs.size() + (i == 0 ? 2 : 0));
  }
  EXPECT_EQ(to_string(plain).find("mixes"), std::string::npos);
}

TEST(Mixing, TheShareStaysInFP32) {
  TrainingSpec spec = mixed_on_gpu();
  spec.mix = {0.2, 1.0};
  const Graph graph = compile_variant(test::residual_model(3), spec, {Role::step, 3});
  const Node& load = graph.nodes[0];
  const TensorId partners = load.outputs[load.outputs.size() - 2], share = load.outputs.back();
  EXPECT_EQ(graph.at(load.outputs[0]).dtype, DType::f16);
  EXPECT_EQ(graph.at(partners).dtype, DType::i32);
  EXPECT_EQ(graph.at(share).dtype, DType::f32);
  int readers = 0;
  for (const Node& node : graph.nodes)
    if (std::find(node.inputs.begin(), node.inputs.end(), share) != node.inputs.end()) ++readers;
  EXPECT_EQ(readers, 2);  // the loss and its gradient
}

}  // namespace
}  // namespace ren
