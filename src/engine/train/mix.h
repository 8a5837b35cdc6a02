// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/rng.h"
#include "engine/compile/spec.h"
#include "engine/ir/batch_mix.h"

namespace ren {

// What torchvision.transforms.v2's MixUp and CutMix make of their random numbers. lambda in 0..1 is a
// sample's own share; x and y, the middle of CutMix's box, lie in 0..width-1 and 0..height-1.
BatchMix mixup(double lambda, int64_t height, int64_t width);
BatchMix cutmix(double lambda, int64_t x, int64_t y, int64_t height, int64_t width);

// Beta(alpha, alpha), alpha at least 0.001: 0..1, both ends possible.
double draw_beta(RandomStream& random, double alpha);

// How the step with that number, counted from the training's beginning, mixes its batch: a function of the
// arguments alone. `spec` names MixUp, CutMix or both; of both, each is taken half of the time.
BatchMix draw_mix(const MixSpec& spec, uint64_t seed, int64_t step, int64_t height, int64_t width);

}  // namespace ren
