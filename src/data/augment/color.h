// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/augment/pixels.h"

// torchvision's functions of colour with the pixels that they give for PIL images, byte for byte. A factor of
// 1 changes nothing; what leaves 0..255 is clamped. Gray pictures have no saturation and no hue.
namespace ren::data {

void adjust_brightness(const Pixels& picture, double factor);
void adjust_contrast(const Pixels& picture, double factor);
void adjust_saturation(const Pixels& picture, double factor, Scratch& scratch);
void adjust_hue(const Pixels& picture, double shift);  // -0.5 to 0.5 of the circle
void rgb_to_grayscale(const Pixels& picture);          // all three channels get the luma
void posterize(const Pixels& picture, int bits);       // 1 to 8 that are kept
void solarize(const Pixels& picture, double threshold);
void autocontrast(const Pixels& picture);
void equalize(const Pixels& picture);

// Pillow's blend: degenerate + factor * (picture - degenerate), clamped, its fraction cut off.
void blend(const uint8_t* degenerate, uint8_t* picture, size_t bytes, float factor);

}  // namespace ren::data
