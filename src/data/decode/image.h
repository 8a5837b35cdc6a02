// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace ren::data {

// Bytes past the last pixel that may be read (never used), so that vector code can load
// whole registers.
constexpr size_t kImagePadding = 64;

// A rectangle of a picture.
struct Region {
  int left = 0, top = 0, width = 0, height = 0;
};

// A part of a picture in pixels and fractions of them, as Pillow's box of resize().
struct Box {
  float left = 0, top = 0, right = 0, bottom = 0;
};

// How bare pixels lie, one byte a value. Without channels: they are in a JPEG or PNG file.
struct PixelForm {
  int width = 0, height = 0, channels = 0;  // 1 = gray, 3 = RGB
  bool planar = false;                      // one channel behind the other, as CIFAR has them

  bool is_raw() const { return channels > 0; }
  size_t bytes() const { return size_t(width) * size_t(height) * size_t(channels); }
};

// Rows of interleaved bytes that someone else owns.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int width = 0, height = 0, channels = 0;
  size_t stride = 0;  // bytes from row to row

  const uint8_t* row(int y) const { return pixels + size_t(y) * stride; }
  ImageView crop(const Region& r) const {
    return {pixels + size_t(r.top) * stride + size_t(r.left) * size_t(channels), r.width, r.height, channels,
            stride};
  }
};

// A picture in memory of its own, rows without gaps, kImagePadding bytes behind the last.
// resize() keeps the memory when it suffices: one Image a thread serves every picture.
class Image {
 public:
  Image() = default;
  Image(int width, int height, int channels) { resize(width, height, channels); }

  // The content is undefined afterwards.
  void resize(int width, int height, int channels) {
    const size_t wanted = size_t(width) * size_t(height) * size_t(channels) + kImagePadding;
    if (wanted > capacity_) {
      memory_.reset();
      memory_.reset(new uint8_t[wanted]);
      capacity_ = wanted;
    }
    width_ = width, height_ = height, channels_ = channels;
    std::memset(memory_.get() + bytes(), 0, kImagePadding);
  }

  // Gives the memory back, and the picture with it, when it is more than that.
  void release_beyond(size_t bytes) {
    if (capacity_ > bytes) *this = Image();
  }

  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }
  size_t stride() const { return size_t(width_) * size_t(channels_); }
  size_t bytes() const { return stride() * size_t(height_); }
  uint8_t* data() { return memory_.get(); }
  const uint8_t* data() const { return memory_.get(); }
  uint8_t* row(int y) { return memory_.get() + size_t(y) * stride(); }
  const uint8_t* row(int y) const { return memory_.get() + size_t(y) * stride(); }
  ImageView view() const { return {memory_.get(), width_, height_, channels_, stride()}; }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  size_t capacity_ = 0;
  int width_ = 0, height_ = 0, channels_ = 0;
};

}  // namespace ren::data
