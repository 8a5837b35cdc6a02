// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// The same bytes in another shape, the number of elements unchanged: a flatten of [N,H,W,C] to
// [N,1,1,HWC], an unflatten, an identity. Input: x. Output: an alias of x. No kernel.
struct ViewAttributes final : Attributes {
  ViewAttributes(int64_t height, int64_t width, int64_t channels) : h(height), w(width), c(channels) {}
  int64_t h, w, c;  // n follows from the number of elements
  std::string text() const override;
};

}  // namespace ren
