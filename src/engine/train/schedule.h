// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ren {

enum class ScheduleKind : uint8_t { constant, step, cosine };

// The learning rate of each step. Warm-up rises linearly, lr * (i + 1) / warmup_steps for step i;
// after it, with j = i - warmup_steps and n = total_steps - warmup_steps:
//   constant: lr;  step: lr * gamma ^ floor(j / step_size);
//   cosine: final + (lr - final) * (1 + cos(pi * j / n)) / 2   (Loshchilov, Hutter, SGDR, 2017).
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double learning_rate = 0.1, final_rate = 0.0;
  int64_t warmup_steps = 0, total_steps = 0;
  int64_t step_size = 0;  // steps between two reductions
  double gamma = 0.1;

  double at(int64_t step) const;
};

}  // namespace ren
