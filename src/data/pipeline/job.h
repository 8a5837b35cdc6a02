// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ren::data {

// How far a long job is.
struct JobProgress {
  enum class Phase { reading_part, packing, verifying, inspecting };
  Phase phase = Phase::packing;
  int64_t done = 0, total = 0;  // pictures
  double pictures_per_second = 0, seconds_left = 0;
  std::string message;  // something to tell, once; mostly empty
};
// Called on the thread that called the job; false stops it (cancelled).
using JobWatch = std::function<bool(const JobProgress&)>;

}  // namespace ren::data
