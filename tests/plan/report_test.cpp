// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graphs.h"

namespace ren::test {
namespace {

struct Small {
  GraphMaker m;
  std::vector<Variant> variants;
  PlanOptions options;

  Small() {
    const TensorId weight = m.parameter("conv.weight", {8, 3, 3, 3});
    m.tensor("running_mean", {1, 1, 1, 8}, Region::B);
    m.tensor("loss", {}, Region::R);
    const TensorId images = m.tensor("images0", {4, 16, 16, 3}, Region::I, DType::u8);
    const TensorId x = m.tensor("x", {4, 16, 16, 3}), y = m.tensor("y<1>", {4, 16, 16, 8});
    const TensorId z = m.tensor("relu", {4, 16, 16, 8}), d = m.tensor("d", {4, 16, 16, 8});
    m.graph.input = x;
    m.node(Op::load_batch, {images}, {x});
    m.node(Op::conv, {x, weight}, {y}, 1000, "conv");
    m.node(Op::pointwise, {y}, {z});
    m.node(Op::reduce, {z}, {d});
    m.node(Op::conv_backward_weights, {x, d, weight}, {m.family(0, Region::G)}, 5000, "conv");
    m.graph.nodes.back().phase = Phase::backward;
    options.first_moments = true;
    variants = {m.variant("train b4", Role::step)};
  }
  MemoryPlan plan() const { return plan_memory(variants, options); }
};

TEST(Report, GoldenDump) {
  EXPECT_EQ(Small().plan().dump(), R"(memory plan: 91648 bytes (89.5 KiB), 1 slots
variant 'train b4': step
B             0 +512          running_statistics
W           512 +1024         weights
E          1536 +0            ema
A          1536 +0            compute_weights
G          1536 +1024         gradients
M          2560 +1024         first_moments
V          3584 +0            second_moments
N          3584 +0            norms
R          3584 +512          results
S          4096 +0            scalars
I          4096 +3072         input
role step: 5 nodes, 5 blocks
F          7168 +79360        features
T         86528 +5120         temporaries
  F  79360 bytes for 112640 (1.42 x reused), at least 79360 (0.00 % above), by size, best fit
  T  5120 bytes for 6144 (1.20 x reused), at least 5120 (0.00 % above), by size, best fit
largest:
         33280 F y<1> (+1 in place), nodes 1-3
         33280 F d, nodes 3-4
         12800 F x, nodes 0-4
          5120 T workspace of conv_backward_weights 'conv', nodes 4-4
          3072 I images0
          1024 W conv.weight
          1024 T workspace of conv 'conv', nodes 1-1
           512 B running_mean
           512 R loss
)");
}

TEST(Report, JsonHoldsTheSameFacts) {
  const MemoryPlan plan = Small().plan();
  const nlohmann::json j = plan.json();
  EXPECT_EQ(j["arena_bytes"], plan.arena_bytes());
  ASSERT_EQ(j["regions"].size(), size_t(Region::F));
  uint64_t end = 0;
  for (const auto& region : j["regions"]) {
    EXPECT_EQ(region["offset"], end);
    end += region["bytes"].get<uint64_t>();
  }
  ASSERT_EQ(j["roles"].size(), 1u);
  const nlohmann::json& role = j["roles"][0];
  EXPECT_EQ(role["role"], "step");
  EXPECT_EQ(role["nodes"], 5);
  EXPECT_EQ(role["regions"][0]["offset"], end);
  EXPECT_EQ(role["blocks"].size(), 5u);  // x, y with relu in place, d, two workspaces
  EXPECT_EQ(j["slots"][0]["elements"], 216);
  EXPECT_EQ(j["tensors"][1]["name"], "conv.weight");
}

TEST(Report, ShortageNamesTheLargestConsumers) {
  EXPECT_EQ(
      explain_shortage(Small().plan(), 50'000),
      "the plan needs 89.5 KiB, 48.8 KiB are available; most goes to F 77.5 KiB (features of role step), "
      "T 5.0 KiB (temporaries of role step), I 3.0 KiB (input), W 1.0 KiB (weights); largest single tensors: "
      "y<1> (+1 in place) (32.5 KiB in F), d (32.5 KiB in F), x (12.5 KiB in F), "
      "workspace of conv_backward_weights 'conv' (5.0 KiB in T), images0 (3.0 KiB in I)");
}

TEST(Report, HtmlIsSelfContainedAndEscaped) {
  const std::string page = html(Small().plan());
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_NE(page.find("y&lt;1&gt;"), std::string::npos);
  EXPECT_EQ(page.find("y<1>"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find(">backward</text>"), std::string::npos);
  // One rectangle for each block of F and T and each region that has bytes: B, W, G, M, R, I, F, T.
  size_t rectangles = 0;
  for (size_t at = page.find("<rect"); at != std::string::npos; at = page.find("<rect", at + 1)) ++rectangles;
  EXPECT_EQ(rectangles, 5u + 8u);
}

TEST(Report, BytesText) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 50), "5120.0 TiB");
}

}  // namespace
}  // namespace ren::test
