// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "data/augment/augmentation.h"
#include "data/decode/image.h"

namespace ren::data {

// Pillow's coefficients for one axis: target position i is the sum of weights(i)[k] times
// source position first[i] + k, in 22-bit fixed point.
struct AxisWeights {
  int taps = 0;                // weights a position, the rest zero
  std::vector<int32_t> first;  // per target position
  std::vector<int32_t> count;
  std::vector<int32_t> weights;  // [target][taps]

  const int32_t* at(int i) const { return weights.data() + size_t(i) * size_t(taps); }
};

constexpr int kResizeBits = 22;  // Pillow's 32 - 8 - 2

AxisWeights axis_weights(int source, float begin, float end, int target, Filter filter);

// Resizes as Pillow's (13.0) Image.resize(size, filter, box), bit for bit. Keeps buffers and the
// weights of the last call; one a thread.
class Resizer {
 public:
  // `target` takes width x height with the source's channels (1 or 3). The source must have
  // kImagePadding readable bytes behind its last pixel.
  void resize(const ImageView& source, int width, int height, Filter filter, Image& target);
  void resize(const ImageView& source, const Box& box, int width, int height, Filter filter, Image& target);
  // Keeps no larger buffer for the next call.
  void release_beyond(size_t bytes) { between_.release_beyond(bytes); }

 private:
  Image between_;
  AxisWeights horizontal_, vertical_;
  std::vector<int16_t> packed_;  // the horizontal weights as the vector code wants them
};

// The same by the plainest code, for tests.
void resize_reference(const ImageView& source, const Box& box, int width, int height, Filter filter,
                      Image& target);

}  // namespace ren::data
