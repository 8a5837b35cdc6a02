// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "engine/ops/pad/pad.h"

namespace ren {

// Where position `i` of a padded axis comes from, or -1: from no input element.
inline int64_t pad_source(PadMode mode, int64_t i, int64_t before, int64_t size) {
  const int64_t at = i - before;
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case PadMode::constant:
      return -1;
    case PadMode::reflect:
      return at < 0 ? -at : 2 * (size - 1) - at;
    case PadMode::edge:
      return std::clamp<int64_t>(at, 0, size - 1);
  }
  return -1;
}

}  // namespace ren
