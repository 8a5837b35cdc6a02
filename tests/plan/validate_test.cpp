// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/status.h"
#include "graphs.h"

namespace ren::test {
namespace {

// A training step with two sizes and an evaluation; every kind of region has content.
class ValidateTest : public testing::Test {
 protected:
  ValidateTest() {
    make(train_, 4, true), make(last_, 1, true), make(evaluate_, 8, false);
    variants_ = {train_.variant("train", Role::step), last_.variant("last", Role::step),
                 evaluate_.variant("evaluate", Role::evaluate)};
    options_.slot_order = {1, 0};
    options_.compute_copies = options_.first_moments = options_.ema = options_.norms = true;
    options_.compute_type = DType::bf16;
  }

  void make(GraphMaker& m, int64_t batch, bool training) {
    m.parameter("weight", {8, 3, 3, 3});
    m.parameter("bias", {1, 1, 1, 8}, ParameterKind::bias);
    copy_ = m.family(0, Region::A, DType::bf16);
    mean_ = m.tensor("running", {1, 1, 1, 8}, Region::B);
    const TensorId deviation = m.tensor("running2", {1, 1, 1, 8}, Region::B);
    scale_ = m.tensor("loss_scale", {}, Region::S);
    m.tensor("step", {}, Region::S);
    m.tensor("loss", {}, Region::R);
    m.tensor("images", {batch, 16, 16, 3}, Region::I, DType::u8);
    x_ = m.tensor("x", {batch, 16, 16, 3});
    y_ = m.tensor("y", {batch, 16, 16, 8});
    view_ = m.alias("y_flat", y_, {batch, 1, 1, 2048});
    z_ = m.tensor("z", {batch, 1, 1, 10});
    m.graph.at(z_).keep = true;
    m.graph.input = x_;
    m.node(Op::load_batch, {}, {x_});
    m.node(Op::conv, {x_, copy_}, {y_}, 1000 * uint64_t(batch));
    m.node(Op::batch_norm_statistics, {y_, mean_, deviation}, {}, 300);
    m.node(Op::gemm, {view_}, {z_});
    if (training) m.node(Op::conv_backward_weights, {x_, y_, copy_}, {gradient_ = m.family(0, Region::G)});
  }

  PlanData data() const { return plan_memory(variants_, options_).data(); }

  // Expects that validate() refuses what `tamper` makes of the right plan, and names `parts`.
  void expect_named(const std::function<void(PlanData&)>& tamper, const std::vector<std::string>& parts) {
    PlanData tampered = data();
    tamper(tampered);
    try {
      validate(MemoryPlan(std::move(tampered)), variants_, options_);
      ADD_FAILURE() << "not found: " << parts[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), StatusCode::internal);
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "no '" << part << "' in\n"
                                                                       << e.what();
    }
  }

  // In all variants of the step, with its aliases.
  void move(PlanData& d, TensorId tensor, uint64_t offset) const {
    for (size_t v : {0, 1})
      for (size_t t = 0; t < d.variants[v].offsets.size(); ++t)
        if (train_.graph.storage(TensorId(t)) == tensor) d.variants[v].offsets[t] = offset;
  }

  GraphMaker train_, last_, evaluate_;
  std::vector<Variant> variants_;
  PlanOptions options_;
  TensorId copy_, mean_, scale_, x_, y_, view_, z_, gradient_;
};

TEST_F(ValidateTest, TheRightPlanPasses) {
  const MemoryPlan plan = plan_memory(variants_, options_);
  EXPECT_NO_THROW(validate(plan, variants_, options_));
  EXPECT_EQ(TagMachine(plan, variants_, options_).run_all(), "");
}

TEST_F(ValidateTest, OverlapOfLiveTensors) {
  expect_named([&](PlanData& d) { move(d, y_, d.variants[0].offsets[size_t(x_)]); },
               {"variant 'train'", "node 1 conv 'conv1'", "'y'", "overlaps 'x', which is still needed"});
}

TEST_F(ValidateTest, OverlapWithAKeptTensor) {
  expect_named([&](PlanData& d) { move(d, z_, d.variants[0].offsets[size_t(x_)]); }, {"'z'", "overlaps 'x'"});
}

TEST_F(ValidateTest, OverlapByOneUnitOnly) {
  expect_named(
      [&](PlanData& d) {
        const uint64_t x = d.variants[0].offsets[size_t(x_)], y = d.variants[0].offsets[size_t(y_)];
        move(d, y_, y < x ? y + 256 : y - 256);
      },
      {"overlaps"});
}

TEST_F(ValidateTest, WorkspaceOverATensorOfT) {
  for (GraphMaker* m : {&train_, &last_}) m->graph.at(x_).region = Region::T;
  expect_named(
      [&](PlanData& d) {
        for (size_t v : {0, 1}) d.variants[v].workspaces[1] = d.variants[v].offsets[size_t(x_)];
      },
      {"a workspace", "overlaps 'x'"});
}

TEST_F(ValidateTest, MissingWorkspace) {
  expect_named([&](PlanData& d) { d.variants[0].workspaces[1] = kNone; },
               {"the workspace of conv1 has no place", "variant 'train'"});
}

TEST_F(ValidateTest, ShiftedSlot) {
  expect_named([](PlanData& d) { d.slots[1].offset += 512; },
               {"the slot of 'weight' begins at 1024, its predecessor ends at 512", "'W(weight)' lies at"});
}

TEST_F(ValidateTest, MisalignedSlot) {
  expect_named([](PlanData& d) { d.slots[1].offset += 256; }, {"the slot of 'weight' is misaligned: 768"});
}

TEST_F(ValidateTest, SwappedOrder) {
  expect_named([](PlanData& d) { std::swap(d.slots[0].parameter, d.slots[1].parameter); },
               {"slot 0 holds parameter 0, the order says 1 ('bias')"});
}

TEST_F(ValidateTest, SlotOfAnotherSize) {
  expect_named([](PlanData& d) { d.slots[0].elements = 9; }, {"the slot of 'bias' has 9 elements, not 8"});
}

TEST_F(ValidateTest, FamilyTensorBesideItsSlot) {
  expect_named(
      [&](PlanData& d) {
        for (VariantPlan& v : d.variants) v.offsets[size_t(copy_)] += 256;
      },
      {"'A(weight)' lies at", "the slot of its parameter in A at"});
  expect_named([&](PlanData& d) { move(d, gradient_, d.variants[0].offsets[size_t(gradient_)] - 512); },
               {"'G(weight)' lies at"});
}

TEST_F(ValidateTest, MisalignedOffset) {
  expect_named([&](PlanData& d) { move(d, x_, d.variants[0].offsets[size_t(x_)] + 16); },
               {"variant 'train': tensor 'x' is misaligned"});
}

TEST_F(ValidateTest, RegionsThatOverlapLeaveGapsOrAreMisaligned) {
  const auto change = [](Region region, int64_t offset, int64_t bytes) {
    return [=](PlanData& d) {
      for (RolePlan& role : d.roles)
        role.regions[size_t(region)].offset += uint64_t(offset),
            role.regions[size_t(region)].bytes += uint64_t(bytes);
    };
  };
  expect_named(change(Region::G, -512, 512), {"region G of role step begins at", "overlaps A"});
  expect_named(change(Region::G, 512, -512), {"region G of role step", "leaves a gap", "region G has"});
  expect_named(change(Region::B, 0, 8), {"region B of role step is misaligned", "region W of role step"});
  expect_named(change(Region::T, 0, 256), {"the arena has"});
}

TEST_F(ValidateTest, RegionsInAnotherOrder) {
  expect_named(
      [](PlanData& d) {
        for (RolePlan& role : d.roles)
          std::swap(role.regions[size_t(Region::G)], role.regions[size_t(Region::M)]);
      },
      {"region G of role step begins at", "region M of role step"});
}

TEST_F(ValidateTest, PersistentRegionThatDependsOnTheRole) {
  expect_named([](PlanData& d) { d.roles[size_t(Role::evaluate)].regions[size_t(Region::S)].bytes += 256; },
               {"region S lies elsewhere in role evaluate than in role step"});
}

TEST_F(ValidateTest, OffsetsThatDifferBetweenVariants) {
  expect_named([&](PlanData& d) { d.variants[2].offsets[size_t(scale_)] += 512; },
               {"'loss_scale' lies at", "in variant 'train' and at", "in variant 'evaluate'"});
  expect_named([&](PlanData& d) { d.variants[1].offsets[size_t(x_)] += 256; },
               {"'x' lies at", "in variant 'train' and at", "in variant 'last'"});
  expect_named([&](PlanData& d) { d.variants[1].workspaces[1] += 256; },
               {"'workspace of conv1' lies at", "in variant 'last'"});
}

TEST_F(ValidateTest, SharedTensorsThatOverlap) {
  expect_named(
      [&](PlanData& d) {
        for (VariantPlan& v : d.variants) v.offsets[size_t(mean_)] += 256;
      },
      {"'B/running' overlaps 'B/running2'"});
}

TEST_F(ValidateTest, TensorOutsideItsRegion) {
  expect_named([&](PlanData& d) { move(d, z_, d.arena_bytes - 256); }, {"'z'", "lies outside region F"});
  expect_named(
      [&](PlanData& d) {
        for (VariantPlan& v : d.variants)
          v.offsets[size_t(scale_)] = d.roles[0].regions[size_t(Region::R)].offset;
      },
      {"'loss_scale'", "lies outside region S"});
}

TEST_F(ValidateTest, AliasApartFromItsOwner) {
  expect_named(
      [&](PlanData& d) {
        for (size_t v : {0, 1}) d.variants[v].offsets[size_t(view_)] += 256;
      },
      {"'y_flat' lies at", "what it aliases at"});
}

TEST_F(ValidateTest, MissingPlace) {
  expect_named([&](PlanData& d) { move(d, y_, kNone); }, {"'y' has no place at node 1"});
  expect_named([&](PlanData& d) { d.variants[0].offsets[size_t(mean_)] = kNone; },
               {"'running' has no place"});
}

TEST_F(ValidateTest, AnotherNumberOfThings) {
  expect_named([](PlanData& d) { d.variants.pop_back(); }, {"for 2 variants, not for 3"});
  expect_named([](PlanData& d) { d.variants[1].offsets.pop_back(); }, {"variant 'last' has"});
  expect_named([](PlanData& d) { d.slots.pop_back(); }, {"1 slots for 2 parameters"});
  expect_named([](PlanData& d) { d.arena_bytes -= 256; }, {"the arena has"});
}

// A dying operand of the output's shape may be overwritten in place by an elementwise node; nothing else.
TEST(ValidateInPlace, OnlyWhereItIsAllowed) {
  GraphMaker m;
  const Shape shape{2, 4, 4, 8};
  const TensorId a = m.tensor("a", shape), b = m.tensor("b", shape), c = m.tensor("c", shape),
                 d = m.tensor("d", shape);
  const TensorId vector = m.tensor("vector", {1, 1, 1, 8}), kept = m.tensor("kept", shape);
  const TensorId later = m.tensor("later", shape), e = m.tensor("e", shape);
  m.graph.at(kept).keep = true;
  m.node(Op::load_batch, {}, {a, vector, kept, later});
  m.node(Op::pointwise, {a, vector, kept, later}, {b, c});
  m.node(Op::reduce, {b, c, later}, {d});
  m.node(Op::reduce, {d}, {e});
  const std::vector<Variant> variants{m.variant("v", Role::step)};
  const PlanData right = plan_memory(variants, {}).data();
  ASSERT_EQ(right.variants[0].offsets[size_t(b)], right.variants[0].offsets[size_t(a)]);
  // b is moved to `where`, and everything else apart, so that this is the only thing that can be wrong.
  const auto accepts = [&](TensorId tensor, TensorId where) {
    PlanData data = right;
    RolePlan& role = data.roles[size_t(Role::step)];
    const uint64_t base = role.regions[size_t(Region::F)].offset, step = 8192;
    for (size_t i = 0; i < m.graph.tensors.size(); ++i) data.variants[0].offsets[i] = base + i * step;
    data.variants[0].offsets[size_t(tensor)] = data.variants[0].offsets[size_t(where)];
    role.regions[size_t(Region::F)].bytes = m.graph.tensors.size() * step;
    role.regions[size_t(Region::T)].offset = data.arena_bytes = base + m.graph.tensors.size() * step;
    try {
      validate(MemoryPlan(std::move(data)), variants, {});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(accepts(b, b));
  EXPECT_TRUE(accepts(b, a));
  EXPECT_TRUE(accepts(c, a));
  EXPECT_TRUE(accepts(e, a));        // long gone
  EXPECT_FALSE(accepts(c, b));       // two outputs in one place
  EXPECT_FALSE(accepts(b, vector));  // broadcast
  EXPECT_FALSE(accepts(b, kept));
  EXPECT_FALSE(accepts(b, later));  // read again
  EXPECT_FALSE(accepts(d, b));      // a reduction
}

}  // namespace
}  // namespace ren::test
