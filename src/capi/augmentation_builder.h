// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "data/augment/augmentation.h"
#include "data/augment/step.h"

namespace ren::capi {

// Puts an augmentation together from transforms in the order in which they are given. What can't be done in
// that order is refused: one resize, one crop, then the others; mirroring may stand anywhere, it comes after
// the crop; what mixes batches comes last.
class AugmentationBuilder {
 public:
  data::Augmentation augmentation = data::Augmentation::eval();

  void set_crop(data::Augmentation::Mode mode, std::string_view item);
  void set_resize_short(int short_side, std::string_view item);
  void set_flip(double chance, std::string_view item);
  void add_step(const data::Step& step, std::string_view item);
  // Augmentation::mixup or cutmix.
  void set_mix(double data::Augmentation::*alpha, double value, std::string_view item);
  // Takes what suits the model's size for crop and flip.
  void set_auto(int height, int width, std::string_view item);
  bool has_mix() const { return augmentation.mixup > 0 || augmentation.cutmix > 0; }
  bool is_empty() const {
    return !has_crop_ && !has_resize_ && !has_flip_ && augmentation.steps.empty() && !has_mix();
  }
  data::Augmentation finish() const;

 private:
  void refuse_behind_mix(std::string_view item) const;
  void refuse_before_crop(std::string_view item) const;

  bool has_crop_ = false, has_resize_ = false, has_flip_ = false;
};

}  // namespace ren::capi
