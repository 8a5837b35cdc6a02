// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "engine/plan/slot.h"
#include "graphs.h"

namespace ren::test {
namespace {

std::string message_of(const std::vector<Variant>& variants, const PlanOptions& options = {}) {
  try {
    plan_memory(variants, options);
    return "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::internal);
    return e.what();
  }
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Slot, Bytes) {
  // 32 bits: exactly twice the 16-bit slot of as many elements.
  EXPECT_EQ(slot_bytes(DType::f16, 1), 256u);
  EXPECT_EQ(slot_bytes(DType::f16, 120), 256u);  // 240 + 16
  EXPECT_EQ(slot_bytes(DType::bf16, 121), 512u);
  EXPECT_EQ(slot_bytes(DType::f32, 120), 512u);
  EXPECT_EQ(slot_bytes(DType::i32, 121), 1024u);
  EXPECT_EQ(slot_bytes(DType::u8, 240), 256u);
  EXPECT_EQ(slot_bytes(DType::i8, 241), 512u);
  for (uint64_t e = 1; e < 5000; e += 7) {
    EXPECT_EQ(slot_bytes(DType::f32, e), 2 * slot_bytes(DType::f16, e));
    EXPECT_GE(slot_bytes(DType::f32, e), 4 * e + 16);
  }
}

TEST(Slot, ChannelPadding) {
  PlanOptions off, on;
  on.channel_padding = true;
  on.compute_type = DType::f16;
  Tensor t;
  t.shape = {2, 5, 5, 3}, t.dtype = DType::f16;
  EXPECT_EQ(padded_elements(t, off), 150u);
  EXPECT_EQ(padded_elements(t, on), 400u);        // C to 8
  EXPECT_EQ(padded_elements(t, on, true), 200u);  // images: C to 4
  t.dtype = DType::u8;
  EXPECT_EQ(padded_elements(t, on), 400u);  // masks
  t.dtype = DType::f32;
  EXPECT_EQ(padded_elements(t, on), 150u);
  t.dtype = DType::u8, t.region = Region::I;
  EXPECT_EQ(padded_elements(t, on), 150u);  // as the host packs them
  Parameter p;
  p.shape = {10, 3, 3, 3};
  EXPECT_EQ(padded_elements(p, off), 270u);
  EXPECT_EQ(padded_elements(p, on), 16u * 9 * 8);
  EXPECT_EQ(padded_elements(p, on, true), 16u * 9 * 4);
  p.shape = {1, 1, 1, 10}, p.kind = ParameterKind::bias;
  EXPECT_EQ(padded_elements(p, on), 16u);
}

TEST(Plan, FamiliesHoldTheSameSlotsInTheOrderAskedFor) {
  GraphMaker m;
  m.parameter("a", {1, 1, 1, 300});
  m.parameter("b", {4, 3, 3, 8});
  m.parameter("c", {1, 1, 1, 7});
  std::vector<TensorId> copies, gradients, moments;
  for (int32_t p = 0; p < 3; ++p) {
    copies.push_back(m.family(p, Region::A, DType::f16));
    gradients.push_back(m.family(p, Region::G));
    moments.push_back(m.family(p, Region::M));
  }
  PlanOptions options;
  options.slot_order = {2, 0, 1};
  options.compute_copies = options.first_moments = true;
  options.compute_type = DType::f16;
  const std::vector<Variant> variants{m.variant("train", Role::step)};
  const MemoryPlan plan = plan_memory(variants, options);
  validate(plan, variants, options);
  ASSERT_EQ(plan.slots().size(), 3u);
  EXPECT_EQ(plan.slots()[0].parameter, 2);
  EXPECT_EQ(plan.slot_offset(Region::W, 2), 0u);
  EXPECT_EQ(plan.slot_offset(Region::W, 0), 512u);          // after 2 * align256(2 * 7 + 16)
  EXPECT_EQ(plan.slot_offset(Region::W, 1), 512u + 1536u);  // after 2 * align256(2 * 300 + 16)
  EXPECT_EQ(plan.region(Region::W).bytes, 512u + 1536u + 1536u);
  EXPECT_EQ(plan.region(Region::A).bytes, plan.region(Region::W).bytes / 2);
  EXPECT_EQ(plan.region(Region::V).bytes, 0u);
  for (int32_t p = 0; p < 3; ++p) {
    const uint64_t in_w = plan.slot_offset(Region::W, p);
    EXPECT_EQ(plan.slot_offset(Region::A, p) * 2, in_w);
    EXPECT_EQ(plan.offset(0, m.graph.parameters[size_t(p)].value), plan.region(Region::W).offset + in_w);
    EXPECT_EQ(plan.offset(0, copies[size_t(p)]), plan.region(Region::A).offset + in_w / 2);
    EXPECT_EQ(plan.offset(0, gradients[size_t(p)]), plan.region(Region::G).offset + in_w);
    EXPECT_EQ(plan.offset(0, moments[size_t(p)]), plan.region(Region::M).offset + in_w);
  }
}

TEST(Plan, GradientOrderIsThatOfTheLastWrites) {
  GraphMaker m;
  for (const char* name : {"first", "tied", "frozen", "last"}) m.parameter(name, {1, 1, 1, 4});
  const TensorId x = m.tensor("x", {});
  const TensorId first = m.family(0, Region::G), tied = m.family(1, Region::G), last = m.family(3, Region::G);
  m.node(Op::gemm, {x}, {tied});
  m.node(Op::reduce, {x}, {last, first});
  m.node(Op::gemm, {x, tied}, {tied});  // the second contribution
  EXPECT_EQ(gradient_order(m.graph), (std::vector<int32_t>{3, 0, 1, 2}));
}

// An input slot stays in one piece in the order record, labels, images, though the variant planned first
// knows no labels; sizes are the most over the variants.
TEST(Plan, InputSlotsTakeTheLargestBatchAndStayInOnePiece) {
  const auto make = [](int64_t batch, bool labels) {
    GraphMaker m;
    for (const char* slot : {"0", "1"}) {
      m.tensor(std::string("record") + slot, {1, 1, 1, 256}, Region::I, DType::u8);
      if (labels) m.tensor(std::string("labels") + slot, {batch, 1, 1, 1}, Region::I, DType::i32);
      m.tensor(std::string("images") + slot, {batch, 8, 8, 3}, Region::I, DType::u8);
    }
    return m;
  };
  const GraphMaker predict = make(1, false), train = make(100, true), last = make(37, true);
  const std::vector<Variant> variants{predict.variant("predict", Role::predict),
                                      last.variant("last", Role::step), train.variant("train", Role::step)};
  const MemoryPlan plan = plan_memory(variants, {});
  validate(plan, variants, {});
  const uint64_t base = plan.region(Region::I).offset;
  for (size_t v : {1, 2}) {
    const uint64_t offsets[] = {0,     256,         768,
                                19968, 19968 + 256, 19968 + 768};  // 100 * 4 -> 512, 100 * 192 = 19200
    for (TensorId t = 0; t < 6; ++t) EXPECT_EQ(plan.offset(v, t) - base, offsets[t]);
  }
  EXPECT_EQ(plan.offset(0, 1), plan.offset(1, 2));
  EXPECT_EQ(plan.region(Region::I).bytes, 2u * 19968);
}

struct Chain {
  GraphMaker m;
  TensorId a, b, c;
  explicit Chain(int64_t batch, Shape operand, Op op = Op::pointwise) {
    a = m.tensor("a", operand);
    b = m.tensor("b", {batch, 4, 4, 16});
    c = m.tensor("c", {batch, 4, 4, 16});
    const TensorId full = m.tensor("full", {batch, 4, 4, 16});
    m.node(Op::load_batch, {}, {full});
    m.node(Op::load_batch, {}, {a});
    m.node(op, {a, full}, {b});
    m.node(Op::reduce, {b, full}, {c});
  }
};

TEST(Plan, PointwiseTakesTheBytesOfADyingOperand) {
  const Chain chain(2, {2, 4, 4, 16});
  const std::vector<Variant> variants{chain.m.variant("v", Role::step)};
  const MemoryPlan plan = plan_memory(variants, {});
  validate(plan, variants, {});
  EXPECT_EQ(plan.offset(0, chain.a), plan.offset(0, chain.b));
  EXPECT_NE(plan.offset(0, chain.b), plan.offset(0, chain.c));
}

TEST(Plan, NothingElseIsWrittenInPlace) {
  const Chain other_op(2, {2, 4, 4, 16}, Op::concat);
  EXPECT_NE(plan_memory(std::vector{other_op.m.variant("v", Role::step)}, {}).offset(0, other_op.a),
            plan_memory(std::vector{other_op.m.variant("v", Role::step)}, {}).offset(0, other_op.b));
  Chain kept(2, {2, 4, 4, 16});
  kept.m.graph.at(kept.a).keep = true;
  const MemoryPlan plan = plan_memory(std::vector{kept.m.variant("v", Role::step)}, {});
  EXPECT_NE(plan.offset(0, kept.a), plan.offset(0, kept.b));
  EXPECT_NE(plan.offset(0, kept.a), plan.offset(0, kept.c));
}

// An operand that the node also updates keeps its bytes for itself.
TEST(Plan, AnUpdatedOperandIsNotTakenOver) {
  GraphMaker m;
  const TensorId sum = m.tensor("sum", {2, 4, 4, 16}), y = m.tensor("y", {2, 4, 4, 16});
  m.node(Op::load_batch, {}, {sum});
  m.node(Op::pointwise, {sum}, {y, sum});
  const MemoryPlan plan = plan_memory(std::vector{m.variant("v", Role::step)}, {});
  EXPECT_NE(plan.offset(0, sum), plan.offset(0, y));
}

// At batch size 1 an operand broadcast over the batch has the output's shape; not so in the other variant.
TEST(Plan, WhatIsBroadcastInOneVariantIsNowhereInPlace) {
  const Chain one(1, {1, 4, 4, 16}), three(3, {1, 4, 4, 16});
  const std::vector<Variant> alone{one.m.variant("one", Role::step)};
  EXPECT_EQ(plan_memory(alone, {}).offset(0, one.a), plan_memory(alone, {}).offset(0, one.b));
  const std::vector<Variant> both{one.m.variant("one", Role::step), three.m.variant("three", Role::step)};
  const MemoryPlan plan = plan_memory(both, {});
  validate(plan, both, {});
  EXPECT_NE(plan.offset(0, one.a), plan.offset(0, one.b));
}

TEST(Plan, AnOperandOfWhichOnlyTheShapeIsReadNeedNotLive) {
  GraphMaker m;
  const TensorId x = m.tensor("x", {1, 64, 64, 8}), y = m.tensor("y", {1, 32, 32, 8});
  const TensorId dy = m.tensor("dy", {1, 32, 32, 8}), dx = m.tensor("dx", {1, 64, 64, 8});
  m.node(Op::load_batch, {}, {x});
  m.node(Op::average_pool, {x}, {y});
  m.node(Op::reduce, {y}, {dy});
  m.node(Op::average_pool_backward, {dy, x}, {dx});
  const std::vector<Variant> variants{m.variant("v", Role::step)};
  const MemoryPlan plan = plan_memory(variants, {});
  validate(plan, variants, {});
  // x is gone when dx comes: never more than one large and one small tensor.
  EXPECT_EQ(plan.region(Region::F).bytes, slot_bytes(DType::f32, 32768) + slot_bytes(DType::f32, 8192));
}

TEST(Plan, RolesShareTheArenaAndTheLargerOneCounts) {
  const Chain small(1, {1, 4, 4, 16}), large(64, {64, 4, 4, 16});
  const std::vector<Variant> variants{small.m.variant("train", Role::step),
                                      large.m.variant("eval", Role::evaluate)};
  const MemoryPlan plan = plan_memory(variants, {});
  validate(plan, variants, {});
  EXPECT_EQ(plan.region(Region::F, Role::step).offset, plan.region(Region::F, Role::evaluate).offset);
  EXPECT_LT(plan.region(Region::F, Role::step).bytes, plan.region(Region::F, Role::evaluate).bytes);
  EXPECT_EQ(plan.arena_bytes(), plan.region(Region::T, Role::evaluate).end());
  EXPECT_EQ(plan.region(Region::F, Role::predict).bytes, 0u);
}

TEST(Plan, RefusesGraphsThatContradictEachOther) {
  const Chain a(1, {1, 4, 4, 16}), b(2, {2, 4, 4, 16}, Op::concat);
  std::string text = message_of({a.m.variant("first", Role::step), b.m.variant("second", Role::step)});
  EXPECT_SAYS(text, "variants 'first' and 'second' of role step differ in structure: node 2");

  GraphMaker c, d;
  c.tensor("scalar", {}, Region::S), d.tensor("scalar", {1, 1, 1, 2}, Region::S);
  text = message_of({c.variant("c", Role::step), d.variant("d", Role::predict)});
  EXPECT_SAYS(text, "'scalar' in region S is [1,1,1,2] in variant 'd' and [1,1,1,1] before");
  c.tensor("scalar", {}, Region::S);
  EXPECT_SAYS(message_of({c.variant("c", Role::step)}), "variant 'c' has two tensors 'S/scalar'");

  GraphMaker e;
  e.parameter("w", {1, 1, 1, 4});
  EXPECT_SAYS(message_of({e.variant("e", Role::step), d.variant("d", Role::predict)}),
              "0 parameters, 'e' has 1");
  PlanOptions twice;
  twice.slot_order = {0, 0};
  EXPECT_SAYS(message_of({e.variant("e", Role::step)}, twice), "slot order");
  e.family(0, Region::G);
  EXPECT_SAYS(message_of({e.variant("e", Role::predict)}),
              "'G(w)' lies in region G, which this plan leaves out");
  e.choices.nodes.push_back({});
  EXPECT_SAYS(message_of({e.variant("e", Role::step)}), "0 nodes but choices for 1");
  EXPECT_SAYS(message_of({}), "at least one variant");
}

TEST(Plan, Resnet50ReachesTheLowerBoundQuickly) {
  const GraphMaker train = resnet50(32, true, 4), last = resnet50(7, true, 4),
                   evaluate = resnet50(64, false, 4);
  ASSERT_GT(train.graph.nodes.size(), 1500u);
  const std::vector<Variant> variants{train.variant("train", Role::step), last.variant("last", Role::step),
                                      evaluate.variant("evaluate", Role::evaluate)};
  PlanOptions options;
  options.slot_order = gradient_order(train.graph);
  options.first_moments = true;
  const auto begin = std::chrono::steady_clock::now();
  const MemoryPlan plan = plan_memory(variants, options);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  validate(plan, variants, options);
  // About 4 ms when this was written; the fence is wide, since machines are shared and sanitizers slow.
  EXPECT_LT(taken.count(), 1000);
  for (const Role role : {Role::step, Role::evaluate}) {
    const LayoutQuality& q = plan.data().roles[size_t(role)].features;
    EXPECT_EQ(q.bytes, q.lower_bound) << name_of(role) << ": " << q.method;
    EXPECT_GT(q.unshared, 2 * q.bytes);
  }
  // The classifier's gradient is complete first, the first convolution's last.
  EXPECT_EQ(train.graph.parameters[size_t(plan.slots().front().parameter)].name, "fc");
  EXPECT_EQ(plan.slots().back().parameter, 0);
}

}  // namespace
}  // namespace ren::test
