// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ren::data {

// What the data module's random streams are for (the `purpose` of RandomStream); no other
// module may use these values.
inline constexpr uint32_t kPurposeShuffle = 0xD501;
inline constexpr uint32_t kPurposeAugment = 0xD502;

}  // namespace ren::data
