// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/plan/memory_plan.h"

namespace ren {

std::string bytes_text(uint64_t bytes);   // "768 B", "1.5 KiB", "12.3 MiB"
const char* long_name_of(Region region);  // "weights"

// What occupies most: the largest blocks of all regions, each region's content once. F and T: of the role
// that needs most.
std::vector<Block> largest_blocks(const MemoryPlan& plan, size_t count);
Role largest_role(const MemoryPlan& plan);

}  // namespace ren
