// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Pads h, w and c. constant: `value` outside; reflect: mirrored without the edge; edge: the edge
// repeated. Negative pads crop (constant mode). pad: x -> y. pad_backward: dy, x (shape only) -> dx.
enum class PadMode : uint8_t { constant, reflect, edge };
struct PadAttributes final : Attributes {
  int64_t top = 0, left = 0, bottom = 0, right = 0, c_before = 0, c_after = 0;
  PadMode mode = PadMode::constant;
  double value = 0;
  std::string text() const override;
};

}  // namespace ren
