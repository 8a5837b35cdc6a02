// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pointwise/pointwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/half.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/pointwise/activations.h"
#include "gradients.h"
#include "harness.h"

namespace ren::test {
namespace {

AttributesPtr pointwise(Expression e, std::vector<DType> types = {}) {
  return std::make_shared<PointwiseAttributes>(std::move(e), std::move(types));
}

// tanh(x0 * x1 + x2) - x3, and x0 + x3: every operand can broadcast by itself.
Expression mixed() {
  ExpressionBuilder e;
  const Value sum = e.add(e.mul(e.input(0), e.input(1)), e.input(2));
  return e.finish({e.sub(e.apply(Prim::tanh, sum), e.input(3)), e.add(e.input(0), e.input(3))}, 4);
}

struct Shapes {
  const char* name;
  Shape full, a, b, c;
};

const Shapes kShapes[] = {
    {"normalisation", {3, 5, 7, 24}, {1, 1, 1, 24}, {1, 1, 1, 24}, {3, 5, 7, 24}},
    {"odd_channels", {2, 9, 11, 3}, {1, 1, 1, 3}, {2, 9, 11, 3}, {1, 1, 1, 1}},
    {"gate", {3, 6, 5, 40}, {3, 1, 1, 40}, {1, 1, 1, 40}, {3, 6, 5, 40}},
    {"rows", {2, 7, 9, 33}, {2, 7, 9, 1}, {2, 7, 9, 1}, {1, 1, 1, 33}},
    {"one_channel", {4, 8, 8, 1}, {4, 1, 1, 1}, {1, 8, 8, 1}, {4, 8, 8, 1}},
    {"scalars", {2, 3, 5, 600}, {1, 1, 1, 1}, {1, 1, 1, 1}, {2, 3, 5, 600}},
    {"wide_rows", {3, 1, 1, 5000}, {1, 1, 1, 5000}, {3, 1, 1, 1}, {3, 1, 1, 5000}},
    {"wide_channels", {2, 3, 3, 1500}, {1, 1, 1, 1500}, {2, 1, 1, 1500}, {2, 3, 3, 1}},
    {"every_axis", {3, 4, 5, 6}, {1, 4, 1, 6}, {3, 1, 5, 1}, {1, 1, 5, 6}},
    {"columns_of_the_image", {3, 4, 5, 6}, {1, 1, 5, 1}, {1, 4, 1, 1}, {1, 4, 5, 6}},
    {"samples", {70, 1, 1, 1}, {70, 1, 1, 1}, {1, 1, 1, 1}, {70, 1, 1, 1}},
    {"one", {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"threads", {9, 31, 33, 20}, {1, 1, 1, 20}, {9, 1, 1, 20}, {9, 31, 33, 1}},
};

class PointwiseShapes : public testing::TestWithParam<std::tuple<Shapes, DType, bool>> {};

TEST_P(PointwiseShapes, AgreesWithTheReference) {
  const auto& [s, type, swapped] = GetParam();
  Case c;
  // The full operand in the first place or in the last.
  const TensorId full = c.input("full", s.full, type, 1), a = c.input("a", s.a, DType::f32, 2);
  const TensorId b = c.input("b", s.b, type, 3), d = c.input("c", s.c, DType::f32, 4);
  const std::vector<TensorId> inputs = swapped ? std::vector{a, b, d, full} : std::vector{full, a, b, d};
  const auto y = c.add(Op::pointwise, inputs, pointwise(mixed(), {type, DType::f32}));
  EXPECT_EQ(c.graph.at(y[0]).type(), (TensorType{s.full, type}));
  EXPECT_EQ(c.graph.at(y[1]).type(), (TensorType{s.full, DType::f32}));
  const auto wanted = c.run_reference(), found = c.run_cpu();
  // A few FP32 roundings of numbers up to 2, then one to the output's type.
  for (TensorId id : y)
    expect_close(found.at(id), wanted.at(id), type_tolerance(c.graph.at(id).dtype), 8, "y");
}

INSTANTIATE_TEST_SUITE_P(All, PointwiseShapes,
                         testing::Combine(testing::ValuesIn(kShapes),
                                          testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param).name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) ? "last" : "first");
                         });

TEST(Pointwise, RepeatsOperandsConstantsAndOutputs) {
  ExpressionBuilder e;
  const Value y = e.apply(Prim::exp, e.input(0));
  const Expression expression = e.finish({y, e.input(0), y, e.constant(2.5), e.input(1)}, 2);
  for (const DType type : {DType::f32, DType::bf16}) {
    Case c;
    const TensorId x = c.input("x", {2, 3, 3, 10}, type, 1), z = c.input("z", {1, 1, 1, 10}, type, 2);
    const auto outputs = c.add(Op::pointwise, {x, z}, pointwise(expression, std::vector<DType>(5, type)));
    const auto wanted = c.run_reference(), found = c.run_cpu();
    for (TensorId id : outputs)
      expect_close(found.at(id), wanted.at(id), 3 * type_tolerance(type), 0.1, "output");
  }
}

TEST(Pointwise, AnOperandMayServeForItsShapeAlone) {
  ExpressionBuilder e;
  Case c;
  const TensorId x = c.input("x", {1, 1, 1, 10}, DType::f32, 1),
                 z = c.input("z", {2, 3, 3, 10}, DType::f32, 2);
  const TensorId y =
      c.add(Op::pointwise, {x, z}, pointwise(e.finish({e.apply(Prim::neg, e.input(0))}, 2)))[0];
  EXPECT_EQ(c.graph.at(y).shape, (Shape{2, 3, 3, 10}));
  expect_close(c.run_cpu().at(y), c.run_reference().at(y), 0, 0, "y");
}

TEST(Pointwise, UnwantedOutputsAreNotWritten) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 3, 10}, DType::f32, 1);
  ExpressionBuilder e;
  const auto y =
      c.add(Op::pointwise, {x}, pointwise(e.finish({e.apply(Prim::exp, e.input(0)), e.input(0)}, 1)));
  c.graph.nodes[0].outputs[0] = kNoTensor;
  expect_close(c.run_cpu().at(y[1]), c.run_reference().at(y[1]), 0, 0, "y");
}

TEST(Pointwise, PropagatesNaNAndInfinity) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const ActivationInfo& info : activations()) {
    Case c;
    const TensorId x = c.input("x", {1, 1, 1, 5}, DType::f32, {infinity, -infinity, nan, 0, -0.0});
    const TensorId y = c.add(Op::pointwise, {x}, pointwise(activation(info.name)))[0];
    // Polynomials within three ULP each.
    expect_close(c.run_cpu().at(y), c.run_reference().at(y), 0x1p-20, 1e-30, info.name);
  }
}

// ---- Random numbers ----------------------------------------------------------------------------

Expression dropout(bool per_sample) {
  ExpressionBuilder e;
  const Value kept = e.less(e.uniform(per_sample ? 8 : 9, per_sample), e.constant(0.75));
  return e.finish(
      {e.select(kept, e.mul(e.input(0), e.constant(1 / 0.75)), e.constant(0)), e.uniform(3, false)}, 1);
}

TEST(Pointwise, DrawsTheNumbersOfTheDefinition) {
  for (const Shape shape : {Shape{3, 5, 7, 6}, Shape{2, 1, 1, 3000}, Shape{5, 1, 1, 1}, Shape{1, 40, 50, 3}})
    for (const bool per_sample : {false, true}) {
      Case c;
      const TensorId x = c.input("x", shape, DType::f32, 1);
      const TensorId state = c.input("state", {1, 1, 1, 4}, DType::i32, {7, -8, 9, 1000});
      const auto y = c.add(Op::pointwise, {x, state}, pointwise(dropout(per_sample)));
      const auto wanted = c.run_reference(), found = c.run_cpu();
      // Two roundings: of 1 / 0.75 and of the product.
      expect_close(found.at(y[0]), wanted.at(y[0]), 2 * type_tolerance(DType::f32), 0, "dropout");
      EXPECT_EQ(found.at(y[1]), wanted.at(y[1])) << "the numbers themselves are equal bit for bit";
    }
}

TEST(Pointwise, ASamplesNumbersDontDependOnItsBatch) {
  const auto draw = [](int64_t batch, double first) {
    Case c;
    const TensorId x = c.input("x", {batch, 3, 3, 5}, DType::f32, 1);
    const TensorId state = c.input("state", {1, 1, 1, 4}, DType::i32, {1, 2, 3, first});
    const TensorId numbers = c.add(Op::pointwise, {x, state}, pointwise(dropout(false)))[1];
    return c.run_cpu().at(numbers);
  };
  const Values whole = draw(4, 10), part = draw(2, 12);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 2 * 45));
  EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin()));
}

// ---- In place and threads ------------------------------------------------------------------------

// Runs one node on given addresses.
void run_node(const Case& c, const std::vector<std::byte*>& inputs, const std::vector<std::byte*>& outputs) {
  const auto device = open_cpu_device();
  const Node& node = c.graph.nodes[0];
  const OpBackend& backend = *cpu_backend().kernels(node.op);
  const NodeChoice choice = backend.prepare({c.graph, node, *device});
  std::vector<std::byte> workspace(choice.workspace_bytes + 256);
  std::byte* aligned = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
  const auto kernel = backend.bind({c.graph, node, choice, *device, inputs, outputs, aligned, {}, {}});
  kernel->launch();
}

TEST(Pointwise, OutputsMayTakeTheOperandsPlace) {
  // Each output would spoil the other's operand if it were stored too early.
  ExpressionBuilder e;
  const Value x = e.input(0), z = e.input(1), sum = e.add(x, z);
  const Expression expression =
      e.finish({e.apply(Prim::tanh, sum), e.mul(e.sub(x, z), e.apply(Prim::exp, sum))}, 2);
  for (const DType type : {DType::f32, DType::f16}) {
    Case c;
    const Shape shape{2, 9, 5, 70};
    const TensorId a = c.input("a", shape, type, 1), b = c.input("b", shape, type, 2);
    const auto y = c.add(Op::pointwise, {a, b}, pointwise(expression, {type, type}));
    const auto wanted = c.run_cpu();
    const size_t bytes = size_t(shape.elements()) * size_of(type);
    std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(bytes));
    for (int i = 0; i < 2; ++i)
      for (size_t k = 0; k < size_t(shape.elements()); ++k) {
        const float value = float(c.given.at(i == 0 ? a : b)[k]);
        if (type == DType::f32)
          std::memcpy(memory[size_t(i)].data() + 4 * k, &value, 4);
        else
          convert_from_f32(&value, type, memory[size_t(i)].data() + 2 * k, 1);
      }
    std::byte *first = memory[0].data(), *second = memory[1].data();
    run_node(c, {first, second}, {second, first});
    for (size_t k = 0; k < size_t(shape.elements()); ++k) {
      float found[2];
      convert_to_f32(second + size_of(type) * k, type, &found[0], 1);
      convert_to_f32(first + size_of(type) * k, type, &found[1], 1);
      ASSERT_EQ(double(found[0]), wanted.at(y[0])[k]) << "element " << k;
      ASSERT_EQ(double(found[1]), wanted.at(y[1])[k]) << "element " << k;
    }
  }
}

TEST(Pointwise, DoesNotDependOnTheNumberOfThreads) {
  Case c;
  const TensorId x = c.input("x", {4, 33, 31, 20}, DType::f32, 1),
                 z = c.input("z", {4, 1, 1, 20}, DType::f32, 2);
  ExpressionBuilder e;
  const TensorId y = c.add(Op::pointwise, {x, z},
                           pointwise(e.finish({e.apply(Prim::tanh, e.mul(e.input(0), e.input(1)))}, 2)))[0];
  const Values usual = c.run_cpu().at(y);
  for (const int threads : {1, 3, 5}) {
    set_compute_threads(threads);
    EXPECT_EQ(c.run_cpu().at(y), usual) << threads << " threads";
  }
  set_compute_threads(0);
}

// ---- Inference -----------------------------------------------------------------------------------

TEST(PointwiseInfer, SaysWhatDoesNotFit) {
  Case c;
  ExpressionBuilder e;
  const Expression sum = e.finish({e.add(e.input(0), e.input(1))}, 2);
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), z = c.input("z", {2, 3, 4, 6}, DType::f32, 2);
  const auto refused = [&](std::vector<TensorId> inputs, const Expression& expression, const char* text) {
    try {
      c.add(Op::pointwise, inputs, pointwise(expression));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused({x, z}, sum, "[2,3,4,5] and [2,3,4,6] don't broadcast");
  refused({x}, sum, "takes 2 to 2 inputs and got 1");
  refused({x, c.input("i", {1, 1, 1, 5}, DType::i32, Values(5, 1))}, sum, "floating point");
  refused({x, z}, dropout(false), "random state");
}

// x0 + 2 * x1, of which x1 is spread.
std::shared_ptr<PointwiseAttributes> spread_sum(OperandView by) {
  ExpressionBuilder e;
  const Value sum = e.add(e.input(0), e.mul(e.constant(2), e.input(1)));
  auto attributes = std::make_shared<PointwiseAttributes>(e.finish({sum}, 2));
  attributes->views = {{}, by};
  return attributes;
}

TEST(PointwiseSpread, IsZeroBetweenItsPixels) {
  const struct {
    OperandView by;
    Shape small;
  } cases[] = {
      {{2, 2}, {2, 4, 3, 3}}, {{3, 1}, {2, 3, 5, 3}}, {{1, 4}, {2, 7, 2, 3}}, {{9, 9}, {2, 1, 1, 3}}};
  for (const auto& [by, small] : cases) {
    Case c;
    const Shape full{2, 7, 5, 3};
    const TensorId x = c.input("x", full, DType::f32, 1), s = c.input("s", small, DType::f32, 2);
    const TensorId y = c.add(Op::pointwise, {x, s}, spread_sum(by))[0];
    ASSERT_EQ(c.graph.at(y).shape, full);
    const auto values = c.run_reference();
    Values wanted = values.at(x);
    for (int64_t n = 0; n < small.n; ++n)
      for (int64_t h = 0; h < small.h; ++h)
        for (int64_t w = 0; w < small.w; ++w)
          for (int64_t k = 0; k < small.c; ++k)
            wanted[size_t(((n * full.h + h * by.h) * full.w + w * by.w) * full.c + k)] +=
                2 * values.at(s)[size_t(((n * small.h + h) * small.w + w) * small.c + k)];
    EXPECT_EQ(values.at(y), wanted);
  }
}

TEST(PointwiseSpread, SaysWhatDoesNotFit) {
  Case c;
  const TensorId x = c.input("x", {2, 7, 5, 3}, DType::f32, 1);
  const auto refused = [&](Shape small, OperandView by, const char* text) {
    try {
      c.add(Op::pointwise, {x, c.input("s", small, DType::f32, 2)}, spread_sum(by));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused({2, 3, 3, 3}, {2, 2}, "[2,3,3,3] where [2,4,3,3] is needed");
  refused({1, 4, 3, 3}, {2, 2}, "[1,4,3,3] where [2,4,3,3] is needed");
  refused({2, 4, 3, 1}, {2, 2}, "[2,4,3,1] where [2,4,3,3] is needed");
  refused({2, 7, 5, 3}, {0, 2}, "at least 1");
}

// x0 + 2 * x1, of which x1 is a window.
std::shared_ptr<PointwiseAttributes> window_sum(int64_t first, int64_t count) {
  return spread_sum({1, 1, first, count});
}

TEST(PointwiseWindow, IsItsChannelsOfATensorWithMore) {
  const struct { int64_t first, count, of; } cases[] = {{0, 3, 5}, {2, 3, 5}, {4, 1, 5}, {0, 3, 3}};
  for (const auto& [first, count, of] : cases) {
    Case c;
    const Shape full{2, 3, 4, 3};
    const TensorId x = c.input("x", full, DType::f32, 1), s = c.input("s", {2, 3, 4, of}, DType::f32, 2);
    const TensorId y = c.add(Op::pointwise, {x, s}, window_sum(first, count))[0];
    ASSERT_EQ(c.graph.at(y).shape, full);
    const auto values = c.run_reference();
    Values wanted = values.at(x);
    for (int64_t pixel = 0; pixel < 24; ++pixel)
      for (int64_t k = 0; k < 3; ++k)
        wanted[size_t(pixel * 3 + k)] += 2 * values.at(s)[size_t(pixel * of + first + k % count)];
    EXPECT_EQ(values.at(y), wanted);
  }
}

TEST(PointwiseWindow, SaysWhatDoesNotFit) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 3}, DType::f32, 1), s = c.input("s", {2, 3, 4, 5}, DType::f32, 2);
  const auto refused = [&](int64_t first, int64_t count, const char* text) {
    try {
      c.add(Op::pointwise, {x, s}, window_sum(first, count));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused(3, 3, "a window of 3 channels from 3 on of 5");
  refused(-1, 3, "a window of 3 channels from -1 on of 5");
  refused(0, -3, "a window of -3 channels");
  refused(0, 2, "don't broadcast");
}

TEST(PointwiseSpread, HasNoKernelOnCpus) {
  Case c;
  const TensorId x = c.input("x", {2, 4, 4, 8}, DType::f32, 1), s = c.input("s", {2, 2, 2, 8}, DType::f32, 2);
  c.add(Op::pointwise, {x, s}, spread_sum({2, 2}));
  try {
    c.run_cpu();
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("reads operands spread"), std::string::npos) << error.what();
  }
}

// ---- Gradients -------------------------------------------------------------------------------------

class PointwiseGradient : public testing::TestWithParam<Shapes> {};

TEST_P(PointwiseGradient, AgreesWithCentralDifferences) {
  const Shapes& s = GetParam();
  Case c;
  const TensorId full = c.input("full", s.full, DType::f32, 1), a = c.input("a", s.a, DType::f32, 2);
  const TensorId b = c.input("b", s.b, DType::f32, 3), d = c.input("c", s.c, DType::f32, 4);
  c.add(Op::pointwise, {full, a, b, d}, pointwise(mixed()));
  expect_gradients(c, {full, a, b, d});
}

// Every difference takes two runs of the reference, so the large shapes stay out.
std::vector<Shapes> small_shapes() {
  std::vector<Shapes> small;
  for (const Shapes& s : kShapes)
    if (s.full.elements() <= 4500) small.push_back(s);
  return small;
}

INSTANTIATE_TEST_SUITE_P(All, PointwiseGradient, testing::ValuesIn(small_shapes()),
                         [](const auto& info) { return info.param.name; });

TEST(PointwiseGradients, SumsOverBroadcastDimensionsWithoutAFullSizeValue) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), s = c.input("s", {1, 1, 1, 5}, DType::f32, 2);
  const TensorId t = c.input("t", {1, 1, 1, 5}, DType::f32, 3);
  ExpressionBuilder e;
  c.add(Op::pointwise, {x, s, t}, pointwise(e.finish({e.add(e.mul(e.input(0), e.input(1)), e.input(2))}, 3)));
  Gradients g(c, {s, t});
  ASSERT_EQ(c.graph.nodes.size(), 2u) << "one reduction for both, nothing else";
  EXPECT_EQ(c.graph.nodes[1].op, Op::reduce);
}

TEST(PointwiseGradients, ASumHandsOnWhatItGets) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), z = c.input("z", {2, 3, 4, 5}, DType::f32, 2);
  ExpressionBuilder e;
  c.add(Op::pointwise, {x, z}, pointwise(e.finish({e.add(e.input(0), e.input(1))}, 2)));
  Gradients g(c, {x, z});
  EXPECT_EQ(c.graph.nodes.size(), 1u);
  EXPECT_EQ(g.of(x), g.output_gradients[0]);
  EXPECT_EQ(g.of(z), g.output_gradients[0]);
}

TEST(PointwiseGradients, HaveTheOperandsTypeButParametersFp32) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 8}, DType::f16, 1),
                 gate = c.input("gate", {2, 1, 1, 8}, DType::f16, 2);
  const TensorId scale = c.input("scale", {1, 1, 1, 8}, DType::f32, random_values(8, 3), Region::W);
  const TensorId whole = c.input("whole", {2, 3, 4, 8}, DType::f32, random_values(192, 4), Region::W);
  ExpressionBuilder e;
  const Value product = e.mul(e.mul(e.input(0), e.input(1)), e.add(e.input(2), e.input(3)));
  c.add(Op::pointwise, {x, gate, scale, whole}, pointwise(e.finish({product}, 4), {DType::f16}));
  Gradients g(c, {x, gate, scale, whole});
  for (TensorId id : {x, gate, scale, whole}) {
    ASSERT_NE(g.of(id), kNoTensor);
    EXPECT_EQ(c.graph.at(g.of(id)).type(), c.graph.at(id).type()) << c.graph.at(id).name;
  }
}

TEST(PointwiseGradients, ComparisonsPassNothing) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), z = c.input("z", {2, 3, 4, 5}, DType::f32, 2);
  ExpressionBuilder e;
  c.add(Op::pointwise, {x, z},
        pointwise(e.finish({e.mul(e.less(e.input(0), e.constant(0)), e.input(1))}, 2)));
  Gradients g(c, {x, z});
  EXPECT_EQ(g.of(x), kNoTensor);
  EXPECT_NE(g.of(z), kNoTensor);
}

TEST(PointwiseGradients, OutputsThatNothingFlowsIntoAreLeftOut) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1);
  ExpressionBuilder e;
  c.add(Op::pointwise, {x},
        pointwise(e.finish({e.apply(Prim::exp, e.input(0)), e.apply(Prim::tanh, e.input(0))}, 1)));
  Gradients g(c, {x}, {1});
  EXPECT_EQ(c.graph.nodes[1].as<PointwiseAttributes>().text(), "y0 = mul(x1, sub(1, mul(x0, x0)))");
  expect_gradients(c, {x}, {1}, 1);
}

TEST(PointwiseGradients, OfRandomExpressionsDrawTheSameNumbers) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1);
  const TensorId state = c.input("state", {1, 1, 1, 4}, DType::i32, {7, 8, 9, 10});
  c.add(Op::pointwise, {x, state}, pointwise(dropout(false)));
  expect_gradients(c, {x}, {0});
}

}  // namespace
}  // namespace ren::test
