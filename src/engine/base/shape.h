// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ren {

// Every tensor of the engine is 4-D NHWC; dimensions that a value lacks are 1.
struct Shape {
  int64_t n = 1, h = 1, w = 1, c = 1;

  constexpr int64_t elements() const { return n * h * w * c; }
  constexpr int64_t pixels() const { return n * h * w; }  // rows of c elements
  constexpr bool operator==(const Shape&) const = default;
};

// "[8,32,32,16]"
std::string to_string(const Shape& shape);

}  // namespace ren
