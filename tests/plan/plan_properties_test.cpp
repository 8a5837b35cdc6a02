// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "graphs.h"

namespace ren::test {
namespace {

// The graphs of one run: some roles, the trained one at several batch sizes.
struct RandomRun {
  explicit RandomRun(uint64_t seed) {
    RandomStream draw(seed, 4, 0);
    const int64_t batch = 1 + int64_t(draw.below(9));
    add(seed, Role::step, batch);
    if (draw.below(2)) add(seed, Role::step, 1);
    if (draw.below(3) == 0) add(seed, Role::step, batch + 3);
    if (draw.below(3) == 0) add(seed, Role::accumulate, batch);
    if (draw.below(2)) add(seed, Role::evaluate, 2 * batch);
    if (draw.below(2)) add(seed, Role::predict, 1);
    for (size_t i = 0; i < makers.size(); ++i)
      variants.push_back(makers[i].variant(fmt::format("v{}", i), roles[i]));
    options = random_options(seed, makers[0].graph.parameters.size());
  }

  std::vector<GraphMaker> makers;
  std::vector<Role> roles;
  std::vector<Variant> variants;
  PlanOptions options;

 private:
  void add(uint64_t seed, Role role, int64_t batch) {
    makers.push_back(random_graph(seed, role, batch));
    roles.push_back(role);
  }
};

TEST(PlanProperties, RandomGraphsAreValidAndRunIntact) {
  uint64_t in_place = 0, shared = 0, variants = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const RandomRun run(seed);
    const MemoryPlan plan = plan_memory(run.variants, run.options);
    ASSERT_NO_THROW(validate(plan, run.variants, run.options)) << "seed " << seed;
    ASSERT_EQ(TagMachine(plan, run.variants, run.options).run_all(), "") << "seed " << seed;
    variants += run.variants.size();
    for (const RolePlan& role : plan.data().roles) {
      ASSERT_LE(role.features.lower_bound, role.features.bytes);
      ASSERT_LE(role.features.bytes, role.features.unshared);
      shared += role.features.bytes < role.features.unshared;
      for (const Block& b : role.blocks) in_place += b.name.find("in place") != std::string::npos;
    }
  }
  // The generator does make what these properties are about.
  EXPECT_GT(in_place, 1000u);
  EXPECT_GT(shared, 1000u);
  EXPECT_GT(variants, 3000u);
}

TEST(PlanProperties, PlansAreRepeatable) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomRun a(seed), b(seed);
    const MemoryPlan pa = plan_memory(a.variants, a.options), pb = plan_memory(b.variants, b.options);
    EXPECT_EQ(pa.json(), pb.json());
    for (size_t v = 0; v < a.variants.size(); ++v) {
      EXPECT_EQ(pa.data().variants[v].offsets, pb.data().variants[v].offsets);
      EXPECT_EQ(pa.data().variants[v].workspaces, pb.data().variants[v].workspaces);
    }
  }
}

// Everything before F has one place, whatever the batch size, for all roles.
TEST(PlanProperties, PersistentOffsetsDoNotDependOnRoleOrOrderOfNodes) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomRun run(seed);
    const MemoryPlan plan = plan_memory(run.variants, run.options);
    for (int r = 0; r < int(Region::F); ++r)
      for (int role = 1; role < kRoles; ++role)
        EXPECT_EQ(plan.region(Region(r), Role(role)), plan.region(Region(r)));
  }
}

bool valid(const MemoryPlan& plan, const RandomRun& run) {
  try {
    validate(plan, run.variants, run.options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Moves a random tensor of F or T, or a workspace, onto another's place, in all variants of the role alike.
// The validator must see whatever the running program would stumble over.
TEST(PlanProperties, ValidatorCatchesWhatARunWouldStumbleOver) {
  int broken = 0, still_right = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomRun run(seed);
    RandomStream draw(seed, 5, 0);
    PlanData data = plan_memory(run.variants, run.options).data();
    const Graph& graph = run.makers[0].graph;
    std::vector<TensorId> movable;
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      if (graph.tensors[i].region == Region::F && data.variants[0].offsets[i] != kNone)
        movable.push_back(TensorId(i));
    if (movable.size() < 2) continue;
    const TensorId moved = graph.storage(movable[draw.below(uint32_t(movable.size()))]);
    const uint64_t target = data.variants[0].offsets[size_t(movable[draw.below(uint32_t(movable.size()))])];
    for (size_t v = 0; v < run.variants.size(); ++v)
      for (size_t i = 0; run.roles[v] == Role::step && i < graph.tensors.size(); ++i)
        if (graph.storage(TensorId(i)) == moved) data.variants[v].offsets[i] = target;
    const MemoryPlan tampered(std::move(data));
    const bool runs = TagMachine(tampered, run.variants, run.options).run_all().empty();
    ++(runs ? still_right : broken);
    if (!runs) {
      EXPECT_FALSE(valid(tampered, run)) << "seed " << seed;
    }
  }
  EXPECT_GT(broken, 300);
  EXPECT_GT(still_right, 100);
}

}  // namespace
}  // namespace ren::test
