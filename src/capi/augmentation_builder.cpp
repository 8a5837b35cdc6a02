// SPDX-License-Identifier: Apache-2.0
#include "capi/augmentation_builder.h"

#include "engine/base/status.h"
#include "engine/compile/spec.h"

namespace ren::capi {

using data::Augmentation;
using Mode = Augmentation::Mode;

void AugmentationBuilder::refuse_behind_mix(std::string_view item) const {
  if (has_mix())
    fail(StatusCode::invalid_argument,
         "augmentation '{}' has to stand before MixUp and CutMix, which mix finished batches", item);
}

void AugmentationBuilder::refuse_before_crop(std::string_view item) const {
  if (has_resize_ && !has_crop_)
    fail(StatusCode::invalid_argument, "augmentation '{}' has to stand behind the crop", item);
}

void AugmentationBuilder::set_mix(double Augmentation::*alpha, double value, std::string_view item) {
  if (augmentation.*alpha > 0)
    fail(StatusCode::invalid_argument, "augmentation '{}' is given more than once", item);
  if (!(value >= MixSpec::kLeastAlpha && value <= MixSpec::kMostAlpha))
    fail(StatusCode::invalid_argument, "augmentation '{}': alpha from {} to {}", item, MixSpec::kLeastAlpha,
         MixSpec::kMostAlpha);
  refuse_before_crop(item);
  augmentation.*alpha = value;
}

void AugmentationBuilder::set_crop(Mode mode, std::string_view item) {
  refuse_behind_mix(item);
  if (has_crop_ || (has_resize_ && mode != Mode::resize_center_crop && mode != Mode::pad_crop))
    fail(StatusCode::invalid_argument, "augmentation '{}': only one way to crop can be given", item);
  if (!augmentation.steps.empty())
    fail(StatusCode::invalid_argument, "augmentation '{}' has to stand before '{}'", item,
         data::info_of(augmentation.steps.front().kind).name);
  has_crop_ = true;
  augmentation.mode = mode;
  if (has_resize_) augmentation.keep_exact_size = false;
}

void AugmentationBuilder::set_resize_short(int short_side, std::string_view item) {
  refuse_behind_mix(item);
  if (has_resize_ || has_crop_)
    fail(StatusCode::invalid_argument, "augmentation '{}' is given once and before the crop", item);
  if (short_side < 1 || short_side > 65535)
    fail(StatusCode::invalid_argument, "augmentation '{}': the short side is 1 to 65535 pixels", item);
  has_resize_ = true;
  augmentation.resize_short = short_side;
}

void AugmentationBuilder::set_flip(double chance, std::string_view item) {
  refuse_behind_mix(item);
  if (has_flip_) fail(StatusCode::invalid_argument, "augmentation '{}' is given more than once", item);
  has_flip_ = true;
  augmentation.flip = float(chance);
}

void AugmentationBuilder::add_step(const data::Step& step, std::string_view item) {
  refuse_behind_mix(item);
  refuse_before_crop(item);
  step.validate();
  augmentation.steps.push_back(step);
}

void AugmentationBuilder::set_auto(int height, int width, std::string_view item) {
  if (!is_empty()) fail(StatusCode::invalid_argument, "augmentation '{}' has to stand first", item);
  augmentation = Augmentation::train(height, width);
  has_crop_ = has_flip_ = true;
}

Augmentation AugmentationBuilder::finish() const {
  if (has_resize_ && !has_crop_)
    fail(StatusCode::invalid_argument,
         "augmentation: behind a resize of the short side, a crop to the model's size has to be given");
  augmentation.validate();
  return augmentation;
}

}  // namespace ren::capi
