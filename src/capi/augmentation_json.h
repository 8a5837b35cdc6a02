// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/augment/augmentation.h"

namespace ren::capi {

// Reads a JSON list of torchvision's transforms, [{"name": "RandAugment", "num_ops": 2}, ...], with their
// names, arguments and defaults; throws invalid_argument that begins with `place` and names the entry.
data::Augmentation parse_augmentation_json(const std::string& json, const std::string& place, int height,
                                           int width);

}  // namespace ren::capi
