// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/memory_plan.h"

namespace ren {

// What shares one piece of memory in F or T: a tensor with all its aliases, and the tensors that
// took its bytes in place one after the other.
struct LiveBlock {
  std::vector<TensorId> tensors;  // owners of storage, in the order of their lifetimes
  Region region = Region::F;
  uint64_t bytes = 0;           // the most over the graphs
  int32_t first = 0, last = 0;  // nodes
};

struct Liveness {
  std::vector<LiveBlock> blocks;
  std::vector<int32_t> block_of;  // by TensorId, aliases resolved; -1: not in F or T, or unused
};

// The lifetimes in F and T of one role, whose graphs have equal structure (see check_same_structure).
Liveness find_liveness(std::span<const Graph* const> graphs, const PlanOptions& options);

// Throws internal, naming the first difference other than in shapes and workspaces.
void check_same_structure(const Variant& a, const Variant& b);

}  // namespace ren
