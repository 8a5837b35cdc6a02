// SPDX-License-Identifier: Apache-2.0
#include "capi/places.h"

#include "capi/guard.h"
#include "engine/base/file.h"

namespace ren::capi {

void refuse_places(const std::string& path, const char* what, const std::vector<Place>& places) {
  for (const Place& place : places)
    if (same_file(path, place.path))
      fail(StatusCode::invalid_argument, "{} '{}' is {}, which it would replace: name another file", what,
           path, place.what);
}

}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" int32_t ren_check_output(const char* path, uint64_t bytes, const char* const* others,
                                    size_t other_count) {
  return guard([&] {
    const std::string file = text_of(path, "path");
    std::vector<Place> places;
    for (const std::string& other : texts_of(others, other_count, "others"))
      places.push_back({other, fmt::format("the same file as '{}'", other)});
    refuse_places(file, "the output", places);
    check_can_write(file, bytes);
  });
}
