// SPDX-License-Identifier: Apache-2.0
#include "data/source/path_list.h"

#include <cstring>

#include "engine/base/status.h"

namespace ren::data {

void PathList::add(std::string_view path) {
  if (path.size() > kBlock)
    fail(StatusCode::invalid_data, "a path of {} bytes, which begins '{}', is too long", path.size(),
         path.substr(0, 100));
  if (items_.size() >= UINT32_MAX) fail(StatusCode::invalid_data, "there are more than {} files", UINT32_MAX);
  if (path.size() > left_) {
    blocks_.emplace_back(new char[kBlock]);
    next_ = blocks_.back().get();
    left_ = kBlock;
  }
  if (!path.empty()) std::memcpy(next_, path.data(), path.size());
  items_.push_back({next_, uint32_t(path.size()), uint32_t(items_.size())});
  next_ += path.size();
  left_ -= path.size();
}

void PathList::sort() {
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    const int order = std::string_view(a.begin, a.length).compare({b.begin, b.length});
    return order != 0 ? order < 0 : a.added < b.added;
  });
}

}  // namespace ren::data
