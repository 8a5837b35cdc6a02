// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "data/augment/step.h"

namespace ren::data {

// How pictures are resized: Pillow's antialiased filters, bit for bit.
enum class Filter { bilinear, bicubic };

// What is done to one decoded picture on its way to the model's size. The same struct
// describes training (random parts) and evaluation (none). Meanings and defaults are
// torchvision's on PIL images; the random numbers are the engine's own.
struct Augmentation {
  enum class Mode {
    none,                 // the picture must have the model's size already
    random_resized_crop,  // RandomResizedCrop(size, scale, ratio)
    resize_center_crop,   // Resize(resize_short), CenterCrop(size)
    pad_crop,             // RandomCrop(size, padding), black outside; with resize_short behind
                          // Resize(resize_short), else other sizes are first resized and
                          // centre-cropped to the model's
    resize                // Resize((height, width)), whatever the proportion was
  };

  Mode mode = Mode::none;
  Filter filter = Filter::bilinear;
  // Short side before resize_center_crop; 0 = 8/7 of the target's (256 for 224). And before pad_crop; 0 = see
  // there.
  int resize_short = 0;
  float min_scale = 0.08f, max_scale = 1.0f;               // share of the area that a crop covers
  float min_ratio = 3.0f / 4.0f, max_ratio = 4.0f / 3.0f;  // width by height of a crop
  int padding = 4;                                         // pad_crop
  float flip = 0.0f;                                       // chance of a horizontal flip
  // resize_center_crop leaves a picture that has the model's size already as it is.
  bool keep_exact_size = true;
  std::vector<Step> steps;  // then, one after the other; each kind once
  // Alphas of MixUp and CutMix, 0: not that one; with both, each batch gets one of them. They mix finished
  // batches: that is done by who trains, on the device, so that no picture and not text() depends on them.
  double mixup = 0, cutmix = 0;

  // True when two calls on one picture can differ.
  bool is_random() const {
    return mode == Mode::random_resized_crop || mode == Mode::pad_crop || flip > 0 || !steps.empty();
  }

  // Throws invalid_argument, naming the field, when a value is out of range.
  void validate() const;

  // One line that names every field that matters; equal text means equal treatment.
  std::string text() const;

  // The usual choices for a model's input size: up to 64 pixels a side pad_crop (by an eighth
  // of the side), above random_resized_crop, each with flip 0.5.
  static Augmentation train(int height, int width);
  static Augmentation eval();

 private:
  std::string crop_text() const;  // text() without the steps
};

}  // namespace ren::data
