// SPDX-License-Identifier: Apache-2.0
#include "engine/train/mix.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ren {
namespace {

constexpr uint32_t kPurposeMix = 0x7201;  // of RandomStream; the data module has 0xD501 and up

// Uniform in (0, 1), so that its logarithm is finite.
double draw_unit(RandomStream& random) {
  const uint64_t high = random.bits() >> 6, low = random.bits() >> 6;
  return (double(high << 26 | low) + 0.5) * 0x1p-52;
}

double draw_normal(RandomStream& random) {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(draw_unit(random)));
  return radius * std::cos(2 * std::numbers::pi * draw_unit(random));
}

// The logarithm of a number that has the gamma distribution: Marsaglia and Tsang, "A simple method for
// generating gamma variables" (2000). std::gamma_distribution would differ between libraries, and underflows
// for small shapes.
double draw_log_gamma(RandomStream& random, double shape) {
  if (shape < 1) {
    const double larger = draw_log_gamma(random, shape + 1);
    return larger + std::log(draw_unit(random)) / shape;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(random), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(draw_unit(random)) < x * x / 2 + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

}  // namespace

double draw_beta(RandomStream& random, double alpha) {
  const double a = draw_log_gamma(random, alpha), b = draw_log_gamma(random, alpha);
  return 1 / (1 + std::exp(b - a));
}

BatchMix mixup(double lambda, int64_t height, int64_t width) {
  BatchMix mix;
  mix.bottom = int32_t(height);
  mix.right = int32_t(width);
  mix.inside = mix.own = float(lambda);
  return mix;
}

BatchMix cutmix(double lambda, int64_t x, int64_t y, int64_t height, int64_t width) {
  const double half_side = 0.5 * std::sqrt(1 - lambda);
  const auto half_height = int64_t(half_side * double(height)),
             half_width = int64_t(half_side * double(width));
  BatchMix mix;
  mix.top = int32_t(std::max<int64_t>(0, y - half_height));
  mix.left = int32_t(std::max<int64_t>(0, x - half_width));
  mix.bottom = int32_t(std::min(height, y + half_height));
  mix.right = int32_t(std::min(width, x + half_width));
  const double area = double(mix.bottom - mix.top) * double(mix.right - mix.left);
  mix.own = float(1 - area / double(height * width));
  return mix;
}

BatchMix draw_mix(const MixSpec& spec, uint64_t seed, int64_t step, int64_t height, int64_t width) {
  RandomStream random(seed, kPurposeMix, uint64_t(step));
  const bool both = spec.mixup > 0 && spec.cutmix > 0;
  const bool cuts = both ? random.below(2) == 1 : spec.cutmix > 0;
  const double lambda = draw_beta(random, cuts ? spec.cutmix : spec.mixup);
  if (!cuts) return mixup(lambda, height, width);
  const int64_t x = random.below(uint32_t(width)), y = random.below(uint32_t(height));
  return cutmix(lambda, x, y, height, width);
}

}  // namespace ren
