// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ren {

// How one node is to be run: made by `prepare`, read by `plan` (the workspace) and by
// `bind`. Text and numbers only, so that it can be printed, cached and sent to other ranks.
struct NodeChoice {
  std::string engine;            // e.g. "onednn:jit:avx512_core", "own"
  uint64_t workspace_bytes = 0;  // planned in T, live while the node runs
  std::vector<int64_t> knobs;    // the engine's own
};

// One entry for each node of one variant's graph.
struct Choices {
  std::vector<NodeChoice> nodes;
};

}  // namespace ren
