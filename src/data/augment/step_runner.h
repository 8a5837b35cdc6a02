// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "data/augment/pixels.h"
#include "data/augment/step.h"
#include "engine/base/rng.h"

namespace ren::data {

// Throws invalid_argument when a step can't take pictures of this size.
void check_step_size(const Step& step, int width, int height);

// What random_erasing covers; without width nothing, when no try fitted.
struct ErasedRegion {
  int left = 0, top = 0, width = 0, height = 0;
};
ErasedRegion draw_erased_region(int width, int height, const Step& step, RandomStream& random);

// Does a list of steps to pictures in place. Each draws from a stream of its own, a fork of the sample's by
// the step's kind: what one draws doesn't depend on the others. One a thread.
class StepRunner {
 public:
  void run(std::span<const Step> steps, const RandomStream& random, const Pixels& picture);

 private:
  void run_one(const Step& step, RandomStream& random, const Pixels& picture);
  void color_jitter(const Step& step, RandomStream& random, const Pixels& picture);
  Scratch scratch_;
};

}  // namespace ren::data
