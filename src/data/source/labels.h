// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace ren::data {

constexpr int64_t kMostClasses = 1'000'000;

// One kind of mistake, wherever it was made: counted, the first places named.
class Tally {
 public:
  void add(const std::string& place) {
    if (count_++ < kShown) places_ += (places_.empty() ? "" : ", ") + place;
  }
  bool empty() const { return count_ == 0; }

  // `what` follows the count: "3 lines have no label: line 4, line 7, line 9".
  void report(Problems& problems, const std::string& where, const char* one, const char* many,
              const char* remedy) const;

 private:
  static constexpr int64_t kShown = 5;
  int64_t count_ = 0;
  std::string places_;
};

// Labels as texts become class numbers. When all of them are whole numbers, they are the class numbers
// already; otherwise they are names, numbered in the order of their bytes.
class LabelTexts {
 public:
  // A provisional number for a text.
  int32_t add(std::string_view text);
  bool empty() const { return ids_.empty(); }

  // A warning when some are whole numbers and others not: one slip makes names of all. Else empty.
  std::string mixture() const;

  // Classes by label; each provisional number in `labels` becomes the label. Adds a problem for
  // numbers out of range.
  std::vector<std::string> settle(std::vector<int32_t>& labels, const std::string& where,
                                  Problems& problems) const;

 private:
  std::map<std::string, int32_t, std::less<>> ids_;
};

// "0", "1" ... : the names of classes that have only numbers.
std::vector<std::string> numbered_classes(int64_t count);
bool are_numbered(const std::vector<std::string>& classes);

}  // namespace ren::data
