// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ren {

// Bytes needed from time `first` to time `last`, both included.
struct Interval {
  uint64_t bytes = 0;
  int32_t first = 0, last = 0;
};

struct Packing {
  std::vector<uint64_t> offsets;  // one an interval
  uint64_t bytes = 0;             // the height reached
  uint64_t lower_bound = 0;       // most bytes alive at one time
  uint64_t unshared = 0;          // the sum of all
  std::string method;
};

// Gives offsets such that intervals that meet in time do not meet in space. Deterministic: several
// greedy orders, the lowest wins, then a bounded number of repairs. Multiples of 256 stay multiples.
Packing pack(std::span<const Interval> intervals);

}  // namespace ren
