// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/augment/augmentation.h"

namespace ren::capi {

// Reads "random-resized-crop:0.35-1,flip", as renaissance_c.h lists it, a JSON list (from '[' on), or the
// JSON file that a name ending with ".json" names. Throws invalid_argument with what is understood, or what
// read_file() throws.
data::Augmentation parse_augmentation(const std::string& text, int height, int width);

// The same treatment in those words, with the values that decide.
std::string augmentation_text(const data::Augmentation& augmentation);

}  // namespace ren::capi
