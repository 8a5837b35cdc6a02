// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sources that say labels themselves. Each throws not_found, io or invalid_data with the path.

#include <string>
#include <string_view>
#include <vector>

#include "data/source/stores.h"

namespace ren::data {

// A file of lines "path,label[,split]".
bool looks_like_list(std::string_view path, std::string_view head);
Source open_list(const std::string& path, Purpose purpose);

// Tar archives that are one data set. Labelled, if there are labels in them.
Source open_tar(const std::string& uri, const std::vector<std::string>& shards, Purpose purpose);

// The names that a pattern with braces stands for, in its order; throws invalid_argument.
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace ren::data
