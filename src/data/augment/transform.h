// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/augment/augmentation.h"
#include "data/augment/resize.h"
#include "data/augment/step_runner.h"
#include "data/decode/image.h"
#include "engine/base/rng.h"

namespace ren::data {

// torchvision's RandomResizedCrop.get_params with this stream's numbers: up to ten tries of
// an area and a log-uniform ratio, then the largest centre crop within the ratios.
Region random_resized_crop(int width, int height, const Augmentation& augmentation, RandomStream& random);

// The size that torchvision's Resize(short) gives.
void short_side_size(int width, int height, int short_side, int& new_width, int& new_height);

// Where torchvision's CenterCrop(crop) begins on an axis; negative = black before the picture.
int center_offset(int size, int crop);

// Takes a decoded picture to the model's input in two stages, so that the first, which draws
// no random number, can be kept for later epochs. One a thread.
class Transformer {
 public:
  Transformer(const Augmentation& augmentation, int height, int width, int channels);

  // The deterministic stage; the result is `decoded` itself or memory of this object, valid
  // until the next call. Throws invalid_data when the mode can't take the picture's size.
  const Image& prepare(const Image& decoded);

  // The random stage: writes height * width * channels bytes.
  void finish(const Image& prepared, RandomStream& random, uint8_t* out);

  // Where only a part of a picture is needed, the two stages can be done without the rest:
  // draw_region() on its size, then finish_region() on that part (`box` within `pixels`), with the same
  // stream.
  bool takes_region() const { return augmentation_.mode == Augmentation::Mode::random_resized_crop; }
  Region draw_region(int width, int height, RandomStream& random) const {
    return random_resized_crop(width, height, augmentation_, random);
  }
  // Keeps no larger buffer for the next picture; what prepare() gave is gone with it.
  void release_beyond(size_t bytes) {
    resized_.release_beyond(bytes);
    resizer_.release_beyond(bytes);
  }
  void finish_region(const ImageView& pixels, const Box& box, RandomStream& random, uint8_t* out);

 private:
  void run_steps(const RandomStream& random, uint8_t* out) {
    runner_.run(augmentation_.steps, random, {out, width_, height_, channels_});
  }
  bool draw_flip(RandomStream& random) const {
    return augmentation_.flip > 0 && random.uniform() < augmentation_.flip;
  }
  const Image& resize_short_side(const Image& decoded, int short_side);
  const Image& fit(const Image& decoded, int short_side);
  void check_crop(const Image& prepared) const;
  void pad_crop(const Image& prepared, RandomStream& random, uint8_t* out) const;

  Augmentation augmentation_;
  int height_, width_, channels_;
  Resizer resizer_;
  Image resized_, fitted_;
  StepRunner runner_;
};

}  // namespace ren::data
