// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/memory_plan.h"

namespace ren {

// F and T of one role: one layout for all its variants, every block as large as the largest needs it.
struct RoleLayout {
  Extent features, temporaries;
  std::vector<uint64_t> offsets;     // by TensorId; kNone outside F and T, or unused
  std::vector<uint64_t> workspaces;  // by node
  std::vector<Block> blocks;
  LayoutQuality feature_quality, temporary_quality;
};

// F begins at `base`. Throws internal when the variants' graphs differ in structure.
RoleLayout lay_out_role(std::span<const Variant* const> variants, const PlanOptions& options, uint64_t base);

}  // namespace ren
