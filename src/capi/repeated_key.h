// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ren::capi {

// A key that one object of a JSON text gives twice.
struct RepeatedKey {
  std::string key;
  size_t element;  // of the outermost list, the one it is in, from 0; 0 where that is no list
};

// The first one; none also where the text is no JSON. Parsers take the last of two values silently,
// and nobody can tell which of them was meant.
std::optional<RepeatedKey> find_repeated_key(std::string_view json);

}  // namespace ren::capi
