// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace ren::data {

// Many paths in few pieces of memory: a million file names cost what their letters cost and 16 bytes each.
class PathList {
 public:
  // Throws invalid_data for a path or a list that is too long.
  void add(std::string_view path);

  int64_t size() const { return int64_t(items_.size()); }
  std::string_view operator[](int64_t i) const {
    const Item& item = items_[size_t(i)];
    return {item.begin, item.length};
  }

  // Orders the paths by their bytes. was(i) is then the position at which the i-th path was added.
  void sort();
  int64_t was(int64_t i) const { return items_[size_t(i)].added; }

 private:
  struct Item {
    const char* begin;
    uint32_t length, added;
  };
  static constexpr size_t kBlock = size_t{1} << 20;

  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t left_ = 0;  // in the last block
  char* next_ = nullptr;
  std::vector<Item> items_;
};

}  // namespace ren::data
