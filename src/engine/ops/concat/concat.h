// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Joins tensors along one axis; all other extents and the dtype are equal.
enum class Axis : uint8_t { n, h, w, c };
const char* name_of(Axis axis);
int64_t extent(const Shape& shape, Axis axis);
void set_extent(Shape& shape, Axis axis, int64_t value);

struct ConcatAttributes final : Attributes {
  explicit ConcatAttributes(Axis a) : axis(a) {}
  Axis axis;  // h, w or c
  std::string text() const override;
};

}  // namespace ren
