// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "data/augment/pixels.h"

// Shearing, moving and turning as torchvision does with PIL images, byte for byte; what comes from outside
// the picture is black.
namespace ren::data {

// Sides beyond this would need another arithmetic than Pillow's 16.16 fixed point for `nearest`.
constexpr int kMostAffineSide = 16384;

// Where the target's pixel (x, y) comes from: (m0 x + m1 y + m2, m3 x + m4 y + m5).
using AffineMatrix = std::array<double, 6>;

AffineMatrix shear_x_matrix(double tangent);
AffineMatrix shear_y_matrix(double tangent);
AffineMatrix translate_matrix(const Pixels& picture, int right, int down);
AffineMatrix rotate_matrix(const Pixels& picture, double degrees);  // counterclockwise about the centre

void affine(const Pixels& picture, const AffineMatrix& matrix, Interpolation interpolation, Scratch& scratch);

}  // namespace ren::data
