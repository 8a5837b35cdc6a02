// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ren {

enum class Region : uint8_t {
#define REN_REGION(letter, name, family, content) letter,
#include "engine/ir/region_list.def"
#undef REN_REGION
};

constexpr int kRegions = 0
#define REN_REGION(letter, name, family, content) +1
#include "engine/ir/region_list.def"
#undef REN_REGION
    ;

constexpr const char* name_of(Region region) {
  switch (region) {
#define REN_REGION(letter, name, family, content) \
  case Region::letter:                            \
    return #letter;
#include "engine/ir/region_list.def"
#undef REN_REGION
  }
  return "?";
}

constexpr bool is_parameter_family(Region region) {
  switch (region) {
#define REN_REGION(letter, name, family, content) \
  case Region::letter:                            \
    return family;
#include "engine/ir/region_list.def"
#undef REN_REGION
  }
  return false;
}

const char* content_of(Region region);

}  // namespace ren
