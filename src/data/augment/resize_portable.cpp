// SPDX-License-Identifier: Apache-2.0
#include "data/augment/resize_kernels.h"

namespace ren::data {
namespace {

constexpr int32_t kHalf = 1 << (kResizeBits - 1);

template <int kChannels>
void horizontal_of(const ImageView& source, const AxisWeights& weights, Image& target) {
  for (int y = 0; y < source.height; ++y) {
    const uint8_t* const row = source.row(y);
    uint8_t* out = target.row(y);
    for (int x = 0; x < target.width(); ++x, out += kChannels) {
      const uint8_t* from = row + size_t(weights.first[size_t(x)]) * kChannels;
      const int32_t* const w = weights.at(x);
      int32_t sum[kChannels];
      for (int c = 0; c < kChannels; ++c) sum[c] = kHalf;
      for (int k = 0; k < weights.count[size_t(x)]; ++k, from += kChannels)
        for (int c = 0; c < kChannels; ++c) sum[c] += from[c] * w[k];
      for (int c = 0; c < kChannels; ++c) out[c] = to_byte(sum[c]);
    }
  }
}

void horizontal(const ImageView& source, const AxisWeights& weights, std::vector<int16_t>&, Image& target) {
  if (source.channels == 3)
    horizontal_of<3>(source, weights, target);
  else
    horizontal_of<1>(source, weights, target);
}

void vertical(const uint8_t* source, size_t stride, const int32_t* weights, int count, size_t bytes,
              uint8_t* target) {
  for (size_t i = 0; i < bytes; ++i) {
    int32_t sum = kHalf;
    for (int k = 0; k < count; ++k) sum += source[size_t(k) * stride + i] * weights[k];
    target[i] = to_byte(sum);
  }
}

}  // namespace

const ResizeKernels& portable_resize_kernels() {
  static constexpr ResizeKernels kernels{horizontal, vertical};
  return kernels;
}

}  // namespace ren::data
