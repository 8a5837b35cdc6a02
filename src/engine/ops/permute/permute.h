// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// A copy in another order, for what no view and no axis map can express. Reads x as `split`, a list of
// factors of its elements in memory order after n (NHWC: h, w, c, each possibly split further), permutes
// these factors by `order`, and writes the result with extents h, w, c. Channel shuffle of g groups on
// [N,H,W,C]: split {H,W,g,C/g}, order {0,1,3,2}. Its gradient is the inverse permutation.
struct PermuteAttributes final : Attributes {
  std::vector<int64_t> split;
  std::vector<int> order;
  int64_t h = 1, w = 1, c = 1;
  std::string text() const override;
};

}  // namespace ren
