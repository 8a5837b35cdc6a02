// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace ren::test {

// A small forward graph of what CNNs are made of, joined at random. The same seed gives the same one.
struct RandomModel {
  Graph graph;
  std::vector<int64_t> batches;  // of training steps: one pixel a channel can't be normalised
};
RandomModel random_model(uint64_t seed);

}  // namespace ren::test
