// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Over C of every row. softmax: x -> y (log: log-softmax). softmax_backward: dy, y -> dx.
struct SoftmaxAttributes final : Attributes {
  explicit SoftmaxAttributes(bool l) : log(l) {}
  bool log;
  std::string text() const override;
};

}  // namespace ren
