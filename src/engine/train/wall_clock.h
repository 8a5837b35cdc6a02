// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace ren {

class WallClock {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ren
