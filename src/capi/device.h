// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren::capi {

struct ChosenDevice {
  const Backend* backend = nullptr;
  int index = 0;
};

// "cpu", "cuda", "cuda:1", "auto" (the first GPU that can be used, else the CPU); throws invalid_argument, or
// not_found with what is missing.
ChosenDevice choose_device(const std::string& name);

}  // namespace ren::capi
