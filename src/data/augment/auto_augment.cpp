// SPDX-License-Identifier: Apache-2.0
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#include "data/augment/auto_augment.h"

#include <cmath>

#include "data/augment/affine.h"
#include "data/augment/color.h"
#include "data/augment/filter.h"

namespace ren::data {
namespace {

// torch.linspace(begin, end, bins)[bin] in FP32: counted from the nearer end.
float linspace(double begin, double end, int bin, int bins) {
  const float first = float(begin), last = float(end), step = (last - first) / float(bins - 1);
  return bin < bins / 2 ? first + step * float(bin) : last - step * float(bins - 1 - bin);
}

// Bits that are kept: from 8 down by `range`.
double posterize_bits(int range, int bin, int bins) {
  const float steps = float(double(bins - 1) / range);
  return std::nearbyint(8.0f - float(bin) / steps);
}

double signed_or_not(AutoOp op, double magnitude, RandomStream& random) {
  return has_sign(op) && random.uniform() < 0.5f ? -magnitude : magnitude;
}

}  // namespace

bool has_sign(AutoOp op) { return op >= AutoOp::shear_x && op <= AutoOp::sharpness; }

double rand_augment_magnitude(AutoOp op, int bin, int bins, int width, int height) {
  switch (op) {
    case AutoOp::shear_x:
    case AutoOp::shear_y:
      return linspace(0.0, 0.3, bin, bins);
    case AutoOp::translate_x:
      return linspace(0.0, 150.0 / 331.0 * width, bin, bins);
    case AutoOp::translate_y:
      return linspace(0.0, 150.0 / 331.0 * height, bin, bins);
    case AutoOp::rotate:
      return linspace(0.0, 30.0, bin, bins);
    case AutoOp::brightness:
    case AutoOp::color:
    case AutoOp::contrast:
    case AutoOp::sharpness:
      return linspace(0.0, 0.9, bin, bins);
    case AutoOp::posterize:
      return posterize_bits(4, bin, bins);
    case AutoOp::solarize:
      return linspace(1.0, 0.0, bin, bins);
    default:
      return 0.0;
  }
}

double trivial_augment_magnitude(AutoOp op, int bin, int bins) {
  switch (op) {
    case AutoOp::translate_x:
    case AutoOp::translate_y:
      return linspace(0.0, 32.0, bin, bins);
    case AutoOp::rotate:
      return linspace(0.0, 135.0, bin, bins);
    case AutoOp::shear_x:
    case AutoOp::shear_y:
    case AutoOp::brightness:
    case AutoOp::color:
    case AutoOp::contrast:
    case AutoOp::sharpness:
      return linspace(0.0, 0.99, bin, bins);
    case AutoOp::posterize:
      return posterize_bits(6, bin, bins);
    case AutoOp::solarize:
      return linspace(1.0, 0.0, bin, bins);
    default:
      return 0.0;
  }
}

void apply_auto_op(AutoOp op, double magnitude, const Pixels& picture, Interpolation interpolation,
                   Scratch& scratch) {
  switch (op) {
    case AutoOp::identity:
      return;
    case AutoOp::shear_x:
      return affine(picture, shear_x_matrix(magnitude), interpolation, scratch);
    case AutoOp::shear_y:
      return affine(picture, shear_y_matrix(magnitude), interpolation, scratch);
    case AutoOp::translate_x:
      return affine(picture, translate_matrix(picture, int(magnitude), 0), interpolation, scratch);
    case AutoOp::translate_y:
      return affine(picture, translate_matrix(picture, 0, int(magnitude)), interpolation, scratch);
    case AutoOp::rotate:
      return affine(picture, rotate_matrix(picture, magnitude), interpolation, scratch);
    case AutoOp::brightness:
      return adjust_brightness(picture, 1.0 + magnitude);
    case AutoOp::color:
      return adjust_saturation(picture, 1.0 + magnitude, scratch);
    case AutoOp::contrast:
      return adjust_contrast(picture, 1.0 + magnitude);
    case AutoOp::sharpness:
      return adjust_sharpness(picture, 1.0 + magnitude, scratch);
    case AutoOp::posterize:
      return posterize(picture, int(magnitude));
    case AutoOp::solarize:
      return solarize(picture, 255.0 * magnitude);
    case AutoOp::auto_contrast:
      return autocontrast(picture);
    case AutoOp::equalize:
      return equalize(picture);
  }
}

void rand_augment(const Pixels& picture, int ops, int magnitude, int bins, Interpolation interpolation,
                  RandomStream& random, Scratch& scratch) {
  for (int i = 0; i < ops; ++i) {
    const AutoOp op = AutoOp(random.below(kAutoOps));
    const double size = rand_augment_magnitude(op, magnitude, bins, picture.width, picture.height);
    apply_auto_op(op, signed_or_not(op, size, random), picture, interpolation, scratch);
  }
}

void trivial_augment_wide(const Pixels& picture, int bins, Interpolation interpolation, RandomStream& random,
                          Scratch& scratch) {
  const AutoOp op = AutoOp(random.below(kAutoOps));
  const double size = trivial_augment_magnitude(op, int(random.below(uint32_t(bins))), bins);
  apply_auto_op(op, signed_or_not(op, size, random), picture, interpolation, scratch);
}

}  // namespace ren::data
