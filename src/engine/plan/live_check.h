// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/plan/memory_plan.h"

namespace ren {

// Runs through one variant's program with only the plan's offsets in hand, and tells where something
// would be written over bytes that are still needed. Part of validate(); shares no code with the
// planner's liveness.
std::vector<std::string> find_live_overlaps(const MemoryPlan& plan, size_t index, const Variant& variant,
                                            const PlanOptions& options);

}  // namespace ren
