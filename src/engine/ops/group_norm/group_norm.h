// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Normalises each sample over H, W and the C/groups channels of a group; groups = C is instance
// normalisation. Variance biased.
// group_norm (composite): x, scale, bias [1,1,1,C] (may be absent) -> y, mean, inverse_std, both
// expanded to [N,1,1,C] FP32 so that they broadcast. group_norm_statistics: x -> mean, inverse_std.
// group_sum: v [N,1,1,C] -> [N,1,1,C], each channel the sum over its group (backward needs it).
struct GroupNormAttributes final : Attributes {
  int64_t groups = 1;
  float epsilon = 1e-5f;
  std::string text() const override;
};

}  // namespace ren
