// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/augment/pixels.h"

namespace ren::data {

// torchvision's adjust_sharpness of a PIL image, byte for byte: 0 smooths, 1 leaves as it is, 2 sharpens.
void adjust_sharpness(const Pixels& picture, double factor, Scratch& scratch);

// torchvision's gaussian_blur: `size` taps (odd) on each axis, borders reflected without their last pixel,
// which takes sides of more than size / 2 pixels. Rows and columns one after the other, in FP32; torchvision
// sums all size * size products at once, so that a value beside a half can be rounded to the other side.
void gaussian_blur(const Pixels& picture, int size, double sigma, Scratch& scratch);

}  // namespace ren::data
