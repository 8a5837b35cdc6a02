// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "engine/compile/spec.h"
#include "engine/ir/graph.h"

namespace ren {

// Called after each pass with its name and the graph as it is then, for printing.
using PassObserver = std::function<void(std::string_view pass, const Graph& graph)>;

// From an imported forward graph to the program of one variant: the passes of kPasses in
// order. Pure: equal arguments give equal graphs, and variants of one role differ in shapes
// alone. Throws Error (unsupported, invalid_argument) naming op and node.
Graph compile_variant(const Graph& forward, const TrainingSpec& spec, const VariantSpec& variant,
                      const PassObserver& observer = {});

// The same graph for another batch: every op's shapes inferred anew.
Graph with_batch(const Graph& forward, int64_t batch);

}  // namespace ren
