// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sources that say labels themselves. Each throws not_found, io or invalid_data with the path.

#include <string>
#include <string_view>

#include "data/source/stores.h"

namespace ren::data {

// A file of lines "path,label[,split]".
bool looks_like_list(std::string_view path, std::string_view head);
Source open_list(const std::string& path, Purpose purpose);

}  // namespace ren::data
