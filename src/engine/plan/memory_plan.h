// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/memory.h"  // kAlignment: of every offset
#include "engine/ir/choices.h"
#include "engine/ir/graph.h"

namespace ren {

enum class Role : uint8_t { step, accumulate, evaluate, predict };
constexpr int kRoles = 4;
const char* name_of(Role role);

// One program to plan for. Variants of one role have the same graph at other sizes.
struct Variant {
  std::string name;
  Role role = Role::step;
  const Graph* graph = nullptr;
  const Choices* choices = nullptr;  // nullptr: no node needs a workspace
};

struct PlanOptions {
  std::vector<int32_t>
      slot_order;  // all parameter indices, as gradient_order() gives them; empty: 0, 1, 2 ...
  // Which conditional regions exist. G exists when a variant trains (step, accumulate).
  bool compute_copies = false;      // A
  bool ema = false;                 // E
  bool first_moments = false;       // M
  bool second_moments = false;      // V
  bool norms = false;               // N: kNormsPerSlot numbers for each slot, in slot order
  DType compute_type = DType::f32;  // of A
  bool channel_padding = false;     // the device's rule for 16-bit and 8-bit channels
};
constexpr int kNormsPerSlot = 2;

constexpr uint64_t kNone = ~uint64_t{0};

// One parameter's place in the families.
struct Slot {
  int32_t parameter = -1;
  uint64_t offset = 0;    // within W, E, G, M and V, bytes; within A half of it
  uint64_t elements = 0;  // padded
};

struct Extent {
  uint64_t offset = 0, bytes = 0;  // in the arena
  uint64_t end() const { return offset + bytes; }
  bool operator==(const Extent&) const = default;
};

// Bytes that something occupies, for reports. In F and T: from node `first` to node `last`.
struct Block {
  std::string name;
  Region region = Region::F;
  uint64_t offset = 0, bytes = 0;  // in the arena
  int32_t first = 0, last = 0;
};

// How well F or T of one role came out.
struct LayoutQuality {
  uint64_t unshared = 0;     // if no two tensors shared bytes
  uint64_t lower_bound = 0;  // most bytes alive at once: no layout can be smaller
  uint64_t bytes = 0;
  std::string method;  // the heuristic that won
};

struct RolePlan {
  bool present = false;
  std::array<Extent, kRegions> regions{};
  std::vector<Phase> phases;  // of the nodes
  std::vector<Block> blocks;  // of F and T
  LayoutQuality features, temporaries;
};

struct VariantPlan {
  std::string name;
  Role role = Role::step;
  std::vector<uint64_t> offsets;     // by TensorId, in the arena; kNone: nothing uses it
  std::vector<uint64_t> workspaces;  // by node, in the arena; kNone: none needed
};

// The whole plan as plain data.
struct PlanData {
  uint64_t arena_bytes = 0;
  std::vector<Slot> slots;
  std::array<RolePlan, kRoles> roles{};
  std::vector<VariantPlan> variants;
  std::vector<Block> persistent;  // parameters (in W) and the tensors of B, N, R, S and I
};

// Where everything lies, decided before anything runs. Immutable; the same on every rank.
class MemoryPlan {
 public:
  explicit MemoryPlan(PlanData data) : data_(std::move(data)) {}

  uint64_t arena_bytes() const { return data_.arena_bytes; }
  // An absent region has no bytes. F and T depend on the role.
  Extent region(Region region, Role role = Role::step) const;
  // Arena offset of a tensor, aliases resolved; kNone for a tensor of F or T that nothing uses.
  uint64_t offset(size_t variant, TensorId tensor) const;
  // Arena offset of a node's workspace; kNone when it needs none.
  uint64_t workspace(size_t variant, size_t node) const;
  const std::vector<Slot>& slots() const { return data_.slots; }
  // Offset of a parameter's slot from the base of that family's region.
  uint64_t slot_offset(Region family, int32_t parameter) const;

  std::string dump() const;  // stable text: regions, sizes, reuse, largest tensors
  nlohmann::json json() const;
  const PlanData& data() const { return data_; }

 private:
  PlanData data_;
};

// Pure: the same arguments give the same plan. Throws internal when the graphs contradict each
// other (other structure within a role, a shared tensor of another size ...).
MemoryPlan plan_memory(std::span<const Variant> variants, const PlanOptions& options);

// Throws internal, naming everything that is wrong. Shares nothing with the planner but the slot rules.
void validate(const MemoryPlan& plan, std::span<const Variant> variants, const PlanOptions& options);

// The order of the families' slots: parameters as backward completes their gradients (the last
// write to their tensor in G), then those that have none, by index.
std::vector<int32_t> gradient_order(const Graph& step_graph);

// Why a device with `available` bytes cannot hold the plan: what it needs, and the largest consumers.
std::string explain_shortage(const MemoryPlan& plan, uint64_t available);

// A self-contained page: regions, lifetimes over the program of each role, largest tensors.
std::string html(const MemoryPlan& plan);

}  // namespace ren
