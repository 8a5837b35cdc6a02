// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/ir/graph.h"

namespace ren {

// A sum by channels may write, in passing, a 16-bit value of its full shape: it goes through all elements
// anyway, so this costs one write and no read.

// May `reduce` store the value of `pointwise` (one output)? Elsewhere than in front of a sum by channels
// the kernels have no columns to keep, and in 16 bits the value can take an operand's bytes.
bool can_store(const Graph& graph, const Node& pointwise, const Node& reduce);

// `reduce` that also writes the value of `pointwise` to `stored`. Where it reads that value, it uses what it
// has just computed.
Node storing_reduction(const Graph& graph, const Node& pointwise, const Node& reduce, TensorId stored);

}  // namespace ren
