// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/ops/concat/concat.h"

namespace ren {

// A tensor cut at one axis: `outer` blocks of extent x `inner` bytes.
struct AxisBlocks {
  int64_t outer, extent, inner;
  int64_t bytes() const { return extent * inner; }
};

inline AxisBlocks axis_blocks(const Shape& s, Axis axis, DType type) {
  const auto element = int64_t(size_of(type));
  switch (axis) {
    case Axis::n:
      return {1, s.n, s.h * s.w * s.c * element};
    case Axis::h:
      return {s.n, s.h, s.w * s.c * element};
    case Axis::w:
      return {s.n * s.h, s.w, s.c * element};
    case Axis::c:
      return {s.n * s.h * s.w, s.c, element};
  }
  return {};
}

}  // namespace ren
