// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ren::data {

// A picture that is changed in place: rows of interleaved bytes without gaps, in somebody's memory, with
// 1 (gray) or 3 (RGB) channels.
struct Pixels {
  uint8_t* data = nullptr;
  int width = 0, height = 0, channels = 0;

  size_t stride() const { return size_t(width) * size_t(channels); }
  size_t bytes() const { return stride() * size_t(height); }
  uint8_t* row(int y) const { return data + size_t(y) * stride(); }
};

// Memory that transforms work in, kept from picture to picture; one a thread.
struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<float> floats, row;
};

// How affine transforms read between pixels, as Pillow does.
enum class Interpolation : uint8_t { nearest, bilinear, bicubic };

}  // namespace ren::data
