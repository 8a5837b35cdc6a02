// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Normalises each row of C: y = (x - mean) / sqrt(var + epsilon) * scale + bias, var biased.
// layer_norm (composite): x, scale [1,1,1,C], bias [1,1,1,C] (either may be absent) -> y, mean,
// inverse_std ([N,H,W,1] FP32). layer_norm_statistics: x -> mean, inverse_std.
struct LayerNormAttributes final : Attributes {
  float epsilon = 1e-5f;
  std::string text() const override;
};

}  // namespace ren
