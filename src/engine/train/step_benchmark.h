// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/train/trainer.h"

namespace ren {

struct StepBenchmarkOptions {
  int steps = 20;       // a window
  int windows = 5;      // measured after a warm-up; their median is the result
  bool profile = true;  // also time each operation, in a trainer of its own
};

struct OperationTime {
  std::string phase, op, node, output, engine;  // output: shape of the first result
  double milliseconds = 0;
};

// Times of one training step whose input lies on the device already.
struct StepBenchmark {
  std::string device;
  double first_step_seconds = 0;                      // from making the trainer to the first step's result
  double first_step_warm_seconds = 0;                 // the same again: kernels and choices are known by then
  double milliseconds = 0, fastest = 0, slowest = 0;  // a step, by windows
  double host_microseconds = 0;  // of the launching thread for one step, its queue empty; the median
  double images_per_second = 0;
  uint64_t arena_bytes = 0;
  std::vector<OperationTime> operations;  // slowest first; empty without profile
};

// Synthetic images and labels, the same in every run. Blocks.
StepBenchmark benchmark_step(const ModelState& model, TrainerOptions options,
                             const StepBenchmarkOptions& how);

}  // namespace ren
