// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "data/dataset.h"

namespace ren::data {

// BatchSource::identity() of a split's pictures: names and labels, file sizes, in archives the CRC-32 of
// every entry, and each option that changes what a sample becomes or when it comes; not the place of the
// data set, the batch size, ranks or threads. File contents are not read.
std::map<std::string, std::string> identity(const Split& split, const LoaderOptions& options);

}  // namespace ren::data
