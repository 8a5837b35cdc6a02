// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "capi/guard.h"
#include "data/dataset.h"

namespace ren::capi {

// The split by name; "train" also finds "all", "val" also "test". Throws not_found.
const data::Split& find_split(const data::Dataset& dataset, const std::string& name);

}  // namespace ren::capi

struct ren_dataset : ren::capi::Handle<ren::data::Dataset, 0x52454e5f44415441> {};
