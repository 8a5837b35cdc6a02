// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/reduce/reduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/threads.h"
#include "gradients.h"
#include "harness.h"

namespace ren::test {
namespace {

AttributesPtr reduce(Expression e, ReduceKind kind, const std::string& kept) {
  const auto keeps = [&](char letter) { return kept.find(letter) != std::string::npos; };
  return std::make_shared<ReduceAttributes>(std::move(e), kind, keeps('n'), keeps('h'), keeps('w'),
                                            keeps('c'));
}

// x0, and x0 * x1 + x2: what a normalisation's backward sums.
Expression two_sums() {
  ExpressionBuilder e;
  return e.finish({e.input(0), e.add(e.mul(e.input(0), e.input(1)), e.input(2))}, 3);
}

struct Target {
  const char* name;
  Shape full;
  Shape a, b;  // broadcast operands
  const char* kept;
};

const Target kTargets[] = {
    {"channels", {3, 5, 7, 24}, {1, 1, 1, 24}, {3, 5, 7, 24}, "c"},
    {"three_channels", {2, 9, 11, 3}, {1, 1, 1, 3}, {1, 1, 1, 1}, "c"},
    {"one_channel", {2, 40, 33, 1}, {1, 1, 1, 1}, {2, 40, 33, 1}, "c"},
    {"many_channels", {2, 5, 3, 1500}, {1, 1, 1, 1500}, {2, 5, 3, 1500}, "c"},
    {"channels_in_parts", {5, 31, 33, 20}, {1, 1, 1, 20}, {5, 1, 1, 20}, "c"},
    {"many_channels_in_parts", {4, 9, 5, 2100}, {1, 1, 1, 2100}, {4, 1, 1, 1}, "c"},
    {"fully_connected", {37, 1, 1, 130}, {37, 1, 1, 130}, {1, 1, 1, 130}, "c"},
    {"sample_channels", {3, 6, 5, 40}, {3, 1, 1, 40}, {3, 6, 5, 40}, "nc"},
    {"sample_channels_in_parts", {7, 21, 19, 36}, {7, 1, 1, 36}, {7, 21, 19, 1}, "nc"},
    {"one_sample_channels_in_parts", {1, 61, 63, 36}, {1, 1, 1, 36}, {1, 61, 63, 1}, "nc"},
    {"wide_sample_channels", {3, 7, 7, 2048}, {3, 1, 1, 2048}, {1, 1, 1, 1}, "nc"},
    {"rows", {2, 7, 9, 33}, {2, 7, 9, 1}, {1, 1, 1, 33}, "nhw"},
    {"wide_rows", {2, 3, 5, 2600}, {2, 3, 5, 1}, {1, 1, 1, 2600}, "nhw"},
    {"rows_in_parts", {4, 30, 31, 20}, {4, 30, 31, 1}, {1, 1, 1, 20}, "nhw"},
    {"samples", {5, 6, 7, 9}, {5, 1, 1, 1}, {5, 1, 1, 9}, "n"},
    {"samples_in_parts", {3, 40, 41, 20}, {3, 1, 1, 1}, {1, 1, 1, 20}, "n"},
    {"all", {5, 6, 7, 9}, {1, 1, 1, 1}, {5, 6, 7, 9}, ""},
    {"all_in_parts", {5, 60, 33, 9}, {1, 1, 1, 1}, {5, 1, 1, 9}, ""},
    {"image", {6, 4, 5, 8}, {1, 4, 5, 8}, {6, 4, 5, 8}, "hwc"},
    {"image_rows", {3, 4, 5, 8}, {1, 4, 1, 1}, {3, 1, 5, 1}, "h"},
    {"image_plane", {3, 4, 5, 8}, {1, 4, 5, 1}, {3, 4, 5, 1}, "hw"},
    {"width", {3, 4, 50, 8}, {1, 1, 50, 1}, {3, 1, 50, 1}, "wc"},
    {"height_by_channel", {3, 40, 5, 8}, {1, 40, 1, 8}, {3, 40, 1, 8}, "hc"},
    {"sample_rows", {3, 4, 5, 8}, {3, 4, 1, 1}, {3, 1, 5, 8}, "nh"},
    {"nothing", {3, 4, 5, 8}, {3, 4, 1, 1}, {3, 1, 5, 8}, "nhwc"},
    {"one", {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, "nc"},
};

class ReduceTargets : public testing::TestWithParam<std::tuple<Target, DType, ReduceKind>> {
 protected:
  void add_node() {
    const auto& [t, type, kind] = GetParam();
    x = c.input("x", t.full, type, 1);
    a = c.input("a", t.a, DType::f32, 2);
    b = c.input("b", t.b, type, 3);
    y = c.add(Op::reduce, {x, a, b}, reduce(two_sums(), kind, t.kept));
  }
  Case c;
  TensorId x = kNoTensor, a = kNoTensor, b = kNoTensor;
  std::vector<TensorId> y;
};

TEST_P(ReduceTargets, AgreesWithTheReference) {
  add_node();
  const auto& [t, type, kind] = GetParam();
  const std::string kept = t.kept;
  const auto extent = [&](char letter, int64_t e) { return kept.find(letter) == std::string::npos ? 1 : e; };
  const Shape wanted_shape{extent('n', t.full.n), extent('h', t.full.h), extent('w', t.full.w),
                           extent('c', t.full.c)};
  const auto wanted = c.run_reference(), found = c.run_cpu();
  const int64_t terms = t.full.elements() / wanted_shape.elements();
  for (TensorId id : y) {
    EXPECT_EQ(c.graph.at(id).type(), (TensorType{wanted_shape, DType::f32}));
    // FP32 within a block of at most sixteen additions, so the count of terms hardly matters: each of
    // magnitude 1, their roundings add up like a random walk.
    expect_close(found.at(id), wanted.at(id), 8 * 0x1p-24, std::sqrt(double(terms)), "y");
  }
}

TEST_P(ReduceTargets, RepeatsToTheBit) {
  add_node();
  const auto first = c.run_cpu();
  for (int run = 0; run < 3; ++run) {
    const auto again = c.run_cpu();
    for (TensorId id : y) EXPECT_EQ(again.at(id), first.at(id));
  }
}

TEST_P(ReduceTargets, IsRightWithAnyNumberOfThreads) {
  add_node();
  const auto wanted = c.run_reference();
  const int64_t terms = std::get<0>(GetParam()).full.elements() / c.graph.at(y[0]).shape.elements();
  for (const int threads : {1, 3, 7}) {
    set_compute_threads(threads);
    const auto found = c.run_cpu();
    for (TensorId id : y)
      expect_close(found.at(id), wanted.at(id), 8 * 0x1p-24, std::sqrt(double(terms)), "y");
  }
  set_compute_threads(0);
}

INSTANTIATE_TEST_SUITE_P(All, ReduceTargets,
                         testing::Combine(testing::ValuesIn(kTargets),
                                          testing::Values(DType::f32, DType::f16),
                                          testing::Values(ReduceKind::sum, ReduceKind::max)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param).name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == ReduceKind::sum ? "sum" : "max");
                         });

Expression identity() {
  ExpressionBuilder e;
  return e.finish({e.input(0)}, 1);
}

TEST(Reduce, SumsOfManyEqualTermsStayExact) {
  // 2^21 terms of 1 + 2^-12: FP32 alone would lose the small part.
  for (const char* kept : {"c", "n", "nc", ""}) {
    Case c;
    const Shape shape{1, 1024, 128, 16};
    const TensorId x = c.input("x", shape, DType::f32, Values(size_t(shape.elements()), 1 + 0x1p-12));
    const TensorId y = c.add(Op::reduce, {x}, reduce(identity(), ReduceKind::sum, kept))[0];
    const int64_t terms = shape.elements() / c.graph.at(y).shape.elements();
    const Values found = c.run_cpu().at(y);
    for (double v : found) EXPECT_EQ(v, double(float(double(terms) * (1 + 0x1p-12)))) << kept;
  }
}

TEST(Reduce, AMaximumMeetsNaN) {
  for (const char* kept : {"c", "nhw", "nc", ""}) {
    Case c;
    Values values = random_values(2 * 40 * 41 * 24, 1);
    values[12345] = std::nan("");
    const TensorId x = c.input("x", {2, 40, 41, 24}, DType::f32, values);
    const TensorId y = c.add(Op::reduce, {x}, reduce(identity(), ReduceKind::max, kept))[0];
    const Values found = c.run_cpu().at(y);
    expect_close(found, c.run_reference().at(y), 0, 0, kept);
    int nans = 0;
    for (double v : found) nans += std::isnan(v);
    EXPECT_EQ(nans, 1) << kept;
  }
}

TEST(Reduce, DrawsTheNumbersOfTheDefinition) {
  ExpressionBuilder e;
  const Value kept = e.less(e.uniform(2, false), e.constant(0.5));
  const Expression counted = e.finish({e.mul(kept, e.input(0)), kept}, 1);
  for (const char* target : {"c", "n", "nhw", "hw"}) {
    Case c;
    const TensorId x = c.input("x", {3, 11, 13, 20}, DType::f32, 1);
    const TensorId state = c.input("state", {1, 1, 1, 4}, DType::i32, {7, 8, 9, 1000});
    const auto y = c.add(Op::reduce, {x, state}, reduce(counted, ReduceKind::sum, target));
    const auto wanted = c.run_reference(), found = c.run_cpu();
    EXPECT_EQ(found.at(y[1]), wanted.at(y[1])) << "counts of random decisions are exact: " << target;
    expect_close(found.at(y[0]), wanted.at(y[0]), 8 * 0x1p-24, 20, target);
  }
}

TEST(Reduce, UnwantedOutputsAreNotWritten) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 8}, DType::f32, 1), a = c.input("a", {1, 1, 1, 8}, DType::f32, 2);
  const auto y = c.add(Op::reduce, {x, a, a}, reduce(two_sums(), ReduceKind::sum, "c"));
  c.graph.nodes[0].outputs[0] = kNoTensor;
  expect_close(c.run_cpu().at(y[1]), c.run_reference().at(y[1]), 8 * 0x1p-24, 5, "y");
}

TEST(Reduce, TextNamesWhatStays) {
  EXPECT_EQ(reduce(identity(), ReduceKind::sum, "nc")->text(), "sum keep nc: y0 = x0");
  EXPECT_EQ(reduce(identity(), ReduceKind::max, "")->text(), "max keep -: y0 = x0");
}

// ---- Gradients -----------------------------------------------------------------------------------

class ReduceGradient : public testing::TestWithParam<std::tuple<Target, ReduceKind>> {};

TEST_P(ReduceGradient, AgreesWithCentralDifferences) {
  const auto& [t, kind] = GetParam();
  Case c;
  const TensorId x = c.input("x", t.full, DType::f32, 1), a = c.input("a", t.a, DType::f32, 2);
  const TensorId b = c.input("b", t.b, DType::f32, 3);
  c.add(Op::reduce, {x, a, b}, reduce(two_sums(), kind, t.kept));
  expect_gradients(c, {x, a, b});
}

std::vector<Target> small_targets() {
  std::vector<Target> small;
  for (const Target& t : kTargets)
    if (t.full.elements() <= 3000) small.push_back(t);
  return small;
}

INSTANTIATE_TEST_SUITE_P(All, ReduceGradient,
                         testing::Combine(testing::ValuesIn(small_targets()),
                                          testing::Values(ReduceKind::sum, ReduceKind::max)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param) == ReduceKind::sum ? "sum" : "max");
                         });

TEST(ReduceGradients, AMeanRepeatsItsShare) {
  Case c;
  ExpressionBuilder e;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1);
  c.add(Op::reduce, {x},
        reduce(e.finish({e.mul(e.input(0), e.constant(1.0 / 12))}, 1), ReduceKind::sum, "nc"));
  expect_gradients(c, {x});
}

TEST(ReduceGradients, EqualMaximaShareEvenly) {
  Case c;
  const TensorId x = c.input("x", {1, 2, 2, 1}, DType::f32, {3, 1, 3, 3});
  c.add(Op::reduce, {x}, reduce(identity(), ReduceKind::max, "nc"));
  Gradients g(c, {x});
  c.given[g.output_gradients[0]] = {6};
  EXPECT_EQ(c.run_reference().at(g.of(x)), (Values{2, 0, 2, 2}));
  EXPECT_EQ(c.run_cpu().at(g.of(x)), (Values{2, 0, 2, 2}));
}

TEST(ReduceGradients, OfA16BitOperandHasItsType) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 8}, DType::f16, 1);
  c.add(Op::reduce, {x}, reduce(identity(), ReduceKind::sum, "nc"));
  Gradients g(c, {x});
  EXPECT_EQ(c.graph.at(g.of(x)).type(), c.graph.at(x).type());
}

}  // namespace
}  // namespace ren::test
