// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "data/augment/pixels.h"

namespace ren::data {

// The random transforms that follow crop and flip, with torchvision's meanings. Their numbers key their
// random streams: they stay as they are, new ones are added behind.
enum class StepKind : uint8_t {
  vertical_flip = 1,
  color_jitter = 2,
  random_grayscale = 3,
  gaussian_blur = 4,
  random_erasing = 5,
  rand_augment = 6,
  trivial_augment_wide = 7,
  auto_contrast = 8
};

// One of torchvision's arguments, in its order: one number, or `count` of them (a range, or a colour).
struct StepParameter {
  const char* name;
  double low, high;                // what is allowed
  std::array<double, 3> defaults;  // NaN: has to be given
  int count = 1;
  bool whole = false;
  bool is_range() const { return count == 2; }  // minimum and maximum
};

struct StepInfo {
  StepKind kind;
  const char* name;              // "color-jitter", in lists
  const char* torchvision_name;  // "ColorJitter", in JSON files
  std::span<const StepParameter> parameters;
  bool takes_interpolation = false;

  int value_count() const;
};

std::span<const StepInfo> step_infos();
const StepInfo& info_of(StepKind kind);
// By StepInfo::name or torchvision_name; nullptr when there is none.
const StepInfo* find_step(std::string_view name, const char* StepInfo::*which);
std::string allowed_text(const StepParameter& parameter);  // "p from 0 to 1"
std::string signature_text(const StepInfo& info);          // "random-erasing[:P[,SCALE,SCALE[,...]]]"

// One transform of a list with its values, those of all parameters one after the other.
struct Step {
  static constexpr int kMostValues = 8;

  StepKind kind = StepKind::vertical_flip;
  std::array<double, kMostValues> values{};
  Interpolation interpolation = Interpolation::nearest;  // where StepInfo::takes_interpolation

  static Step with_defaults(StepKind kind);
  // Throws invalid_argument with the values that are allowed.
  void validate() const;
  // As it is given in a list, with all values: "color-jitter:0.4,0.4,0.4,0.1".
  std::string text() const;
};

const char* name_of(Interpolation interpolation);
bool find_interpolation(std::string_view name, Interpolation& out);  // false: there is none

}  // namespace ren::data
