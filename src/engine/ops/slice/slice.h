// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/concat/concat.h"
#include "engine/ops/op.h"

namespace ren {

// x[begin, begin+step, ...] (count of them) along one axis of h, w, c; step >= 1.
// slice: x -> y. slice_backward: dy, x (shape only) -> dx, zeros where nothing was taken.
struct SliceAttributes final : Attributes {
  SliceAttributes(Axis a, int64_t b, int64_t n, int64_t s = 1) : axis(a), begin(b), count(n), step(s) {}
  Axis axis;
  int64_t begin, count, step;
  std::string text() const override;
};

}  // namespace ren
