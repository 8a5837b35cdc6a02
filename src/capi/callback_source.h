// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/base/batch_source.h"
#include "renaissance_c.h"

namespace ren::capi {

// Batches that the caller's function makes; throws invalid_argument for options out of range.
std::unique_ptr<BatchSource> make_callback_source(const ren_source_options& options, ren_fill_fn fn,
                                                  void* user);

}  // namespace ren::capi
