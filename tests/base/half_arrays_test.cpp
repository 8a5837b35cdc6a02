// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "engine/base/half.h"

namespace ren {
namespace {

// Every upper half of a float with lower halves around the rounding boundary: what decides the result.
TEST(HalfArrays, Bf16HasTheBitsOfSingleConversions) {
  std::vector<float> wide;
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      wide.push_back(std::bit_cast<float>(upper << 16 | lower));
  wide.resize(wide.size() - 3);  // no multiple of a vector
  std::vector<uint16_t> narrow(wide.size());
  convert_from_f32(wide.data(), DType::bf16, narrow.data(), wide.size());
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrow[i], to_bf16(wide[i])) << "element " << i;
  convert_to_f32(narrow.data(), DType::bf16, wide.data(), wide.size());
  for (size_t i = 0; i < wide.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), uint32_t{narrow[i]} << 16) << "element " << i;
}

}  // namespace
}  // namespace ren
