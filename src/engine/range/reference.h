// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/base/status.h"
#include "engine/ops/support/reference.h"
#include "engine/range/range.h"

namespace ren {

// The slot of a parameter in a family that the op cannot do without.
inline std::vector<double>& range_slot(const ReferenceCall& call, Region family, int parameter) {
  require(call.regions != nullptr, "the reference of {} needs regions", name_of(call.node.op));
  std::vector<double>* values = call.regions->slot(family, parameter);
  require(values != nullptr, "{} needs region {}", name_of(call.node.op), name_of(family));
  return *values;
}

inline int parameters_of(const ReferenceCall& call) { return int(call.graph.parameters.size()); }

// A device scalar that may be absent.
inline double scalar_or(const ReferenceCall& call, size_t input, double fallback) {
  const auto* values = optional_input(call, input);
  return values ? (*values)[0] : fallback;
}

}  // namespace ren
