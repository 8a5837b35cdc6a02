// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "data/augment/pixels.h"
#include "engine/base/rng.h"

// RandAugment (Cubuk et al., arXiv 1909.13719) and TrivialAugmentWide (Müller and Hutter, arXiv 2103.10158)
// as torchvision has them.
namespace ren::data {

enum class AutoOp : uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize
};
constexpr int kAutoOps = 14;

// torchvision's tables of magnitudes, in FP32: the value of bin 0 .. bins - 1, without its sign.
double rand_augment_magnitude(AutoOp op, int bin, int bins, int width, int height);
double trivial_augment_magnitude(AutoOp op, int bin, int bins);
bool has_sign(AutoOp op);

// One operation at a magnitude, as torchvision's _apply_image_or_video_transform on a PIL image.
void apply_auto_op(AutoOp op, double magnitude, const Pixels& picture, Interpolation interpolation,
                   Scratch& scratch);

void rand_augment(const Pixels& picture, int ops, int magnitude, int bins, Interpolation interpolation,
                  RandomStream& random, Scratch& scratch);
void trivial_augment_wide(const Pixels& picture, int bins, Interpolation interpolation, RandomStream& random,
                          Scratch& scratch);

}  // namespace ren::data
