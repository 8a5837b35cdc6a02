// SPDX-License-Identifier: Apache-2.0
#include "data/augment/step_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/augment/affine.h"
#include "data/augment/auto_augment.h"
#include "data/augment/color.h"
#include "data/augment/filter.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

double between(double low, double high, RandomStream& random) {
  return low + (high - low) * random.uniform();
}

bool happens(double chance, RandomStream& random) { return random.uniform() < chance; }

void flip_vertically(const Pixels& picture) {
  for (int y = 0; y < picture.height / 2; ++y)
    std::swap_ranges(picture.row(y), picture.row(y) + picture.stride(), picture.row(picture.height - 1 - y));
}

void erase(const Pixels& picture, const ErasedRegion& region, const double* color) {
  for (int y = region.top; y < region.top + region.height; ++y) {
    uint8_t* out = picture.row(y) + size_t(region.left) * size_t(picture.channels);
    for (int x = 0; x < region.width; ++x)
      for (int c = 0; c < picture.channels; ++c) *out++ = uint8_t(color[c]);
  }
}

}  // namespace

void check_step_size(const Step& step, int width, int height) {
  const int side = std::min(width, height);
  if (step.kind == StepKind::gaussian_blur && int(step.values[0]) / 2 >= side)
    fail(StatusCode::invalid_argument,
         "augmentation gaussian-blur: kernel_size is {}; pictures of {} x {} pixels take {} at most",
         step.values[0], width, height, 2 * side - 1);
  const bool turns = step.kind == StepKind::rand_augment || step.kind == StepKind::trivial_augment_wide;
  if (turns && std::max(width, height) > kMostAffineSide)
    fail(StatusCode::invalid_argument,
         "augmentation {} takes pictures of up to {} pixels a side, not {} x {}", info_of(step.kind).name,
         kMostAffineSide, width, height);
}

ErasedRegion draw_erased_region(int width, int height, const Step& step, RandomStream& random) {
  const auto& v = step.values;
  const double low = std::log(v[3]), high = std::log(v[4]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = double(width) * height * between(v[1], v[2], random);
    const double ratio = std::exp(between(low, high, random));
    const double h = std::nearbyint(std::sqrt(area * ratio)), w = std::nearbyint(std::sqrt(area / ratio));
    if (!(h < height && w < width)) continue;
    ErasedRegion region{0, 0, int(w), int(h)};
    region.top = int(random.below(uint32_t(height - region.height + 1)));
    region.left = int(random.below(uint32_t(width - region.width + 1)));
    return region;
  }
  return {};
}

void StepRunner::run(std::span<const Step> steps, const RandomStream& random, const Pixels& picture) {
  for (const Step& step : steps) {
    RandomStream own = random.fork(uint8_t(step.kind));
    run_one(step, own, picture);
  }
}

void StepRunner::run_one(const Step& step, RandomStream& random, const Pixels& picture) {
  const auto& v = step.values;
  switch (step.kind) {
    case StepKind::vertical_flip:
      if (happens(v[0], random)) flip_vertically(picture);
      return;
    case StepKind::color_jitter:
      return color_jitter(step, random, picture);
    case StepKind::random_grayscale:
      if (happens(v[0], random)) rgb_to_grayscale(picture);
      return;
    case StepKind::gaussian_blur:
      return gaussian_blur(picture, int(v[0]), between(v[1], v[2], random), scratch_);
    case StepKind::random_erasing:
      if (happens(v[0], random))
        erase(picture, draw_erased_region(picture.width, picture.height, step, random), &v[5]);
      return;
    case StepKind::rand_augment:
      return rand_augment(picture, int(v[0]), int(v[1]), int(v[2]), step.interpolation, random, scratch_);
    case StepKind::trivial_augment_wide:
      return trivial_augment_wide(picture, int(v[0]), step.interpolation, random, scratch_);
    case StepKind::auto_contrast:
      if (happens(v[0], random)) autocontrast(picture);
      return;
  }
}

// The four changes in random order, each by a factor from max(0, 1 - value) to 1 + value; the hue turns by up
// to its value. Everything is drawn, also what has no effect.
void StepRunner::color_jitter(const Step& step, RandomStream& random, const Pixels& picture) {
  std::array<int, 4> order;
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  std::array<double, 4> amounts;
  for (size_t i = 0; i < 3; ++i)
    amounts[i] = between(std::max(0.0, 1.0 - step.values[i]), 1.0 + step.values[i], random);
  amounts[3] = between(-step.values[3], step.values[3], random);
  for (const int change : order) {
    const double amount = amounts[size_t(change)];
    if (step.values[size_t(change)] == 0) continue;
    if (change == 0) adjust_brightness(picture, amount);
    if (change == 1) adjust_contrast(picture, amount);
    if (change == 2) adjust_saturation(picture, amount, scratch_);
    if (change == 3) adjust_hue(picture, amount);
  }
}

}  // namespace ren::data
