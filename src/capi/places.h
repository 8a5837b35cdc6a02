// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ren::capi {

struct Place {
  std::string path, what;  // "the model's external data"
};

// Throws invalid_argument when `path` leads to one of these; `what` names it in the message.
void refuse_places(const std::string& path, const char* what, const std::vector<Place>& places);

}  // namespace ren::capi
