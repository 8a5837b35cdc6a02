// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/dataset.h"

namespace ren::data {

// 16 hexadecimal digits over the names and labels of the samples, in order, and over every
// option that changes what a sample becomes or when it comes; not over the place of the data
// set, the batch size, ranks or threads. File contents are not read.
std::string fingerprint(const Split& split, const LoaderOptions& options);

}  // namespace ren::data
