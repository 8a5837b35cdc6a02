// SPDX-License-Identifier: Apache-2.0
// Ops that move data without computing: kernels must equal the references bit for bit.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/status.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/permute/permute.h"
#include "engine/ops/slice/slice.h"
#include "engine/ops/view/view.h"
#include "harness.h"

namespace ren::test {
namespace {

class Layout : public testing::TestWithParam<DType> {};

void expect_equal(const Case& c, TensorId id, const std::string& what) {
  EXPECT_EQ(c.run_cpu().at(id), c.run_reference().at(id)) << what;
}

TEST_P(Layout, Concat) {
  for (const Axis axis : {Axis::h, Axis::w, Axis::c}) {
    Case c;
    std::vector<TensorId> parts;
    for (const int64_t size : {3, 1, 8}) {
      Shape shape{3, 4, 5, 6};
      set_extent(shape, axis, size);
      parts.push_back(c.input("x", shape, GetParam(), uint64_t(size)));
    }
    const TensorId y = c.add(Op::concat, parts, std::make_shared<ConcatAttributes>(axis))[0];
    EXPECT_EQ(extent(c.graph.at(y).shape, axis), 12);
    expect_equal(c, y, name_of(axis));
  }
}

TEST_P(Layout, SliceAndItsGradient) {
  for (const Axis axis : {Axis::h, Axis::w, Axis::c})
    for (const SliceAttributes& a :
         {SliceAttributes(axis, 0, 9), SliceAttributes(axis, 2, 5), SliceAttributes(axis, 8, 1),
          SliceAttributes(axis, 1, 4, 2), SliceAttributes(axis, 0, 3, 4)}) {
      Case c;
      const TensorId x = c.input("x", {2, 9, 9, 9}, GetParam(), 1);
      const auto shared = std::make_shared<SliceAttributes>(a);
      const TensorId y = c.add(Op::slice, {x}, shared)[0];
      const TensorId dy = c.input("dy", c.graph.at(y).shape, GetParam(), 2);
      const TensorId dx = c.add(Op::slice_backward, {dy, x}, shared)[0];
      expect_equal(c, y, a.text());
      expect_equal(c, dx, a.text());
    }
}

std::vector<PadAttributes> paddings() {
  std::vector<PadAttributes> all(6);
  all[0].top = 1, all[0].right = 2, all[0].value = -1.5;
  all[1].mode = PadMode::reflect, all[1].top = 2, all[1].left = 3, all[1].bottom = 1, all[1].right = 3;
  all[2].mode = PadMode::edge, all[2].left = 4, all[2].bottom = 5, all[2].c_after = 2;
  all[3].c_before = 2, all[3].c_after = 3;
  all[4].top = -1, all[4].left = 2, all[4].right = -3, all[4].c_before = -1;
  all[5].mode = PadMode::reflect, all[5].c_before = 2, all[5].c_after = 1, all[5].top = 1;
  return all;
}

TEST_P(Layout, PadAndItsGradient) {
  for (const PadAttributes& a : paddings()) {
    Case c;
    // Quarters: their sums are exact in every type, so gradients must be equal too.
    Values values = random_integers(2 * 4 * 5 * 3, 1, 9);
    const TensorId x = c.input("x", {2, 4, 5, 3}, GetParam(), values);
    const auto shared = std::make_shared<PadAttributes>(a);
    const TensorId y = c.add(Op::pad, {x}, shared)[0];
    const Shape ys = c.graph.at(y).shape;
    const TensorId dy = c.input("dy", ys, GetParam(), random_integers(ys.elements(), 2, 5));
    const TensorId dx = c.add(Op::pad_backward, {dy, x}, shared)[0];
    expect_equal(c, y, a.text());
    expect_equal(c, dx, a.text());
  }
}

TEST_P(Layout, Permute) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int>>> cases = {
      {{3, 4, 10}, {2, 0, 1}},       // HWC to CHW
      {{3, 4, 10}, {0, 1, 2}},       // nothing
      {{3, 4, 2, 5}, {0, 1, 3, 2}},  // channel shuffle
      {{3, 4, 10}, {1, 0, 2}},       // H and W swapped
      {{3, 2, 2, 5, 2}, {4, 1, 0, 3, 2}},
      {{120}, {0}}};
  for (const auto& [split, order] : cases) {
    Case c;
    const TensorId x = c.input("x", {3, 3, 4, 10}, GetParam(), 1);
    auto a = std::make_shared<PermuteAttributes>();
    a->split = split;
    a->order = order;
    a->h = 4, a->w = 5, a->c = 6;
    expect_equal(c, c.add(Op::permute, {x}, a)[0], a->text());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layout, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(LayoutValues, ChannelShuffle) {
  Case c;
  const TensorId x = c.input("x", {1, 1, 1, 6}, DType::f32, {0, 1, 2, 3, 4, 5});
  auto a = std::make_shared<PermuteAttributes>();
  a->split = {1, 1, 2, 3};
  a->order = {0, 1, 3, 2};
  a->c = 6;
  const TensorId y = c.add(Op::permute, {x}, a)[0];
  EXPECT_EQ(c.run_cpu().at(y), (Values{0, 3, 1, 4, 2, 5}));
}

TEST(LayoutValues, ReflectionLeavesOutTheEdge) {
  Case c;
  const TensorId x = c.input("x", {1, 1, 4, 1}, DType::f32, {1, 2, 3, 4});
  auto a = std::make_shared<PadAttributes>();
  a->mode = PadMode::reflect;
  a->left = 2, a->right = 3;
  const TensorId y = c.add(Op::pad, {x}, a)[0];
  EXPECT_EQ(c.run_cpu().at(y), (Values{3, 2, 1, 2, 3, 4, 3, 2, 1}));
}

TEST(LayoutInfer, RefusesWhatDoesNotFit) {
  Case c;
  const TensorId x = c.input("x", {2, 3, 4, 5}, DType::f32, 1), y = c.input("y", {2, 3, 5, 5}, DType::f32, 1);
  EXPECT_THROW(c.add(Op::concat, {x, y}, std::make_shared<ConcatAttributes>(Axis::c)), Error);
  EXPECT_THROW(c.add(Op::slice, {x}, std::make_shared<SliceAttributes>(Axis::c, 3, 3)), Error);
  EXPECT_THROW(c.add(Op::view, {x}, std::make_shared<ViewAttributes>(7, 1, 1)), Error);
  auto reflect = std::make_shared<PadAttributes>();
  reflect->mode = PadMode::reflect;
  reflect->top = 3;
  EXPECT_THROW(c.add(Op::pad, {x}, reflect), Error);
  auto permute = std::make_shared<PermuteAttributes>();
  permute->split = {3, 4, 5};
  permute->order = {0, 1, 1};
  permute->h = 3, permute->w = 4, permute->c = 5;
  EXPECT_THROW(c.add(Op::permute, {x}, permute), Error);
}

}  // namespace
}  // namespace ren::test
