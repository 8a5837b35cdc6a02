// SPDX-License-Identifier: Apache-2.0
#include "engine/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ren {

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) return learning_rate * double(step + 1) / double(warmup_steps);
  const int64_t j = step - warmup_steps, n = std::max<int64_t>(1, total_steps - warmup_steps);
  switch (kind) {
    case ScheduleKind::constant:
      return learning_rate;
    case ScheduleKind::step:
      return step_size <= 0 ? learning_rate : learning_rate * std::pow(gamma, double(j / step_size));
    case ScheduleKind::cosine:
      return final_rate + (learning_rate - final_rate) *
                              (1.0 + std::cos(std::numbers::pi * double(std::min(j, n)) / double(n))) / 2.0;
  }
  return learning_rate;
}

}  // namespace ren
