// SPDX-License-Identifier: Apache-2.0
#include "data/augment/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/status.h"

namespace ren::data {
namespace {

// `from` has kImagePadding bytes behind its picture.
void copy_row(const uint8_t* from, uint8_t* to, int width, int channels, bool flip) {
  if (!flip) {
    std::memcpy(to, from, size_t(width) * size_t(channels));
  } else if (channels == 3) {
    // Four bytes are one store; the next pixel replaces the last of them.
    const uint8_t* pixel = from + 3 * (width - 1);
    for (int x = 0; x + 1 < width; ++x, pixel -= 3, to += 3) std::memcpy(to, pixel, 4);
    std::memcpy(to, pixel, 3);
  } else {
    std::reverse_copy(from, from + width, to);
  }
}

void copy_picture(const Image& from, bool flip, uint8_t* out) {
  if (!flip) {
    std::memcpy(out, from.data(), from.bytes());
    return;
  }
  for (int y = 0; y < from.height(); ++y)
    copy_row(from.row(y), out + size_t(y) * from.stride(), from.width(), from.channels(), true);
}

// Python's round(): half to even.
int round_half_even(double value) { return int(std::nearbyint(value)); }

}  // namespace

void Augmentation::validate() const {
  const auto check = [](bool good, const char* field, const char* rule) {
    if (!good) fail(StatusCode::invalid_argument, "augmentation: {} must be {}", field, rule);
  };
  check(resize_short >= 0 && resize_short <= 65535, "resize_short", "0 (automatic) to 65535");
  check(min_scale > 0 && min_scale <= max_scale && max_scale <= 1, "min_scale, max_scale",
        "0 < min <= max <= 1");
  check(min_ratio > 0 && min_ratio <= max_ratio && max_ratio <= 100, "min_ratio, max_ratio",
        "0 < min <= max <= 100");
  check(padding >= 0 && padding <= 65535, "padding", "0 to 65535");
  check(flip >= 0 && flip <= 1, "flip", "a chance from 0 to 1");
  uint32_t seen = 0;
  for (const Step& step : steps) {
    step.validate();
    if ((seen & (1u << int(step.kind))) != 0)
      fail(StatusCode::invalid_argument, "augmentation {} is given more than once", info_of(step.kind).name);
    seen |= 1u << int(step.kind);
  }
}

std::string Augmentation::text() const {
  std::string text = crop_text();
  for (const Step& step : steps) text.append(" ").append(step.text());
  return text;
}

std::string Augmentation::crop_text() const {
  const char* const name = filter == Filter::bilinear ? "bilinear" : "bicubic";
  switch (mode) {
    case Mode::none:
      return fmt::format("none flip={}", flip);
    case Mode::random_resized_crop:
      return fmt::format("random_resized_crop {} scale={}..{} ratio={}..{} flip={}", name, min_scale,
                         max_scale, min_ratio, max_ratio, flip);
    case Mode::resize_center_crop:
      return fmt::format("resize_center_crop {} short={} keep_exact_size={} flip={}", name, resize_short,
                         keep_exact_size, flip);
    case Mode::pad_crop:
      return fmt::format("pad_crop {} padding={}{} flip={}", name, padding,
                         resize_short > 0 ? fmt::format(" short={}", resize_short) : "", flip);
    case Mode::resize:
      return fmt::format("resize {} flip={}", name, flip);
  }
  return {};
}

Augmentation Augmentation::train(int height, int width) {
  Augmentation a;
  const int side = std::max(height, width);
  a.mode = side <= 64 ? Mode::pad_crop : Mode::random_resized_crop;
  a.padding = std::max(1, side / 8);
  a.flip = 0.5f;
  return a;
}

Augmentation Augmentation::eval() {
  Augmentation a;
  a.mode = Mode::resize_center_crop;
  return a;
}

Region random_resized_crop(int width, int height, const Augmentation& a, RandomStream& random) {
  const double area = double(width) * height;
  const double low = std::log(double(a.min_ratio)), high = std::log(double(a.max_ratio));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (a.min_scale + double(a.max_scale - a.min_scale) * random.uniform());
    const double ratio = std::exp(low + (high - low) * random.uniform());
    const int w = round_half_even(std::sqrt(target * ratio));
    const int h = round_half_even(std::sqrt(target / ratio));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const int top = int(random.below(uint32_t(height - h + 1)));
    const int left = int(random.below(uint32_t(width - w + 1)));
    return {left, top, w, h};
  }
  int w = width, h = height;
  const double ratio = double(width) / height;
  if (ratio < a.min_ratio)
    h = std::clamp(round_half_even(w / double(a.min_ratio)), 1, height);
  else if (ratio > a.max_ratio)
    w = std::clamp(round_half_even(h * double(a.max_ratio)), 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

void short_side_size(int width, int height, int short_side, int& new_width, int& new_height) {
  const int64_t smaller = std::min(width, height), larger = std::max(width, height);
  const int longer = int(double(int64_t{short_side} * larger) / double(smaller));
  new_width = width <= height ? short_side : longer;
  new_height = width <= height ? longer : short_side;
}

int center_offset(int size, int crop) {
  if (crop > size) return -((crop - size) / 2);
  return round_half_even((size - crop) / 2.0);
}

Transformer::Transformer(const Augmentation& augmentation, int height, int width, int channels)
    : augmentation_(augmentation), height_(height), width_(width), channels_(channels) {
  augmentation_.validate();
  for (const Step& step : augmentation_.steps) check_step_size(step, width, height);
}

const Image& Transformer::prepare(const Image& decoded) {
  const bool exact = decoded.width() == width_ && decoded.height() == height_;
  const int target_short = std::min(width_, height_);
  switch (augmentation_.mode) {
    case Augmentation::Mode::none:
      if (!exact)
        fail(StatusCode::invalid_data,
             "the picture is {} x {} pixels, the model takes {} x {}: choose an "
             "augmentation that resizes",
             decoded.width(), decoded.height(), width_, height_);
      return decoded;
    case Augmentation::Mode::random_resized_crop:
      return decoded;
    case Augmentation::Mode::pad_crop:
      if (augmentation_.resize_short > 0) {
        const Image& resized = resize_short_side(decoded, augmentation_.resize_short);
        check_crop(resized);
        return resized;
      }
      return exact ? decoded : fit(decoded, target_short);
    case Augmentation::Mode::resize:
      if (exact) return decoded;
      resizer_.resize(decoded.view(), width_, height_, augmentation_.filter, resized_);
      return resized_;
    case Augmentation::Mode::resize_center_crop: {
      if (exact && augmentation_.keep_exact_size) return decoded;
      const int automatic = round_half_even(target_short * 8.0 / 7.0);
      return fit(decoded, augmentation_.resize_short > 0 ? augmentation_.resize_short : automatic);
    }
  }
  return decoded;
}

const Image& Transformer::resize_short_side(const Image& decoded, int short_side) {
  int width, height;
  short_side_size(decoded.width(), decoded.height(), short_side, width, height);
  // A picture of 1 x 60000 pixels would otherwise become one of gigabytes.
  constexpr int64_t kMostPixels = int64_t{1} << 28;
  if (int64_t{width} * height > kMostPixels) {
    const bool is_thin = int64_t{short_side} * short_side <= kMostPixels;
    fail(StatusCode::invalid_data,
         "the picture is {} x {} pixels and would be {} x {} (at most {} pixels): {}", decoded.width(),
         decoded.height(), width, height, kMostPixels,
         is_thin ? fmt::format("too long and thin to be resized to a short side of {}", short_side)
                 : fmt::format("the short side that is asked for, {}, is too large", short_side));
  }
  resizer_.resize(decoded.view(), width, height, augmentation_.filter, resized_);
  return resized_;
}

// RandomCrop takes nothing smaller, padding included.
void Transformer::check_crop(const Image& prepared) const {
  const int padding = 2 * augmentation_.padding;
  if (prepared.width() + padding < width_ || prepared.height() + padding < height_)
    fail(StatusCode::invalid_data,
         "the picture is {} x {} pixels after resizing and {} of padding a side, the crop is {} x {}: choose "
         "a "
         "larger short side",
         prepared.width(), prepared.height(), augmentation_.padding, width_, height_);
}

// Resize(short_side) and CenterCrop, black where the crop is larger than the picture.
const Image& Transformer::fit(const Image& decoded, int short_side) {
  resize_short_side(decoded, short_side);
  const int width = resized_.width(), height = resized_.height();
  if (width == width_ && height == height_) return resized_;
  const int left = center_offset(width, width_), top = center_offset(height, height_);
  fitted_.resize(width_, height_, channels_);
  if (left < 0 || top < 0) std::memset(fitted_.data(), 0, fitted_.bytes());
  const int x0 = std::max(0, -left), y0 = std::max(0, -top);
  const int w = std::min(width, width_), h = std::min(height, height_);
  for (int y = 0; y < h; ++y)
    std::memcpy(fitted_.row(y0 + y) + size_t(x0) * size_t(channels_),
                resized_.row(std::max(0, top) + y) + size_t(std::max(0, left)) * size_t(channels_),
                size_t(w) * size_t(channels_));
  return fitted_;
}

void Transformer::finish(const Image& prepared, RandomStream& random, uint8_t* out) {
  if (takes_region()) {
    const Region region = draw_region(prepared.width(), prepared.height(), random);
    const Box whole{0, 0, float(region.width), float(region.height)};
    finish_region(prepared.view().crop(region), whole, random, out);
  } else if (augmentation_.mode == Augmentation::Mode::pad_crop) {
    pad_crop(prepared, random, out);
    run_steps(random, out);
  } else {
    copy_picture(prepared, draw_flip(random), out);
    run_steps(random, out);
  }
}

void Transformer::finish_region(const ImageView& pixels, const Box& box, RandomStream& random, uint8_t* out) {
  resizer_.resize(pixels, box, width_, height_, augmentation_.filter, resized_);
  copy_picture(resized_, draw_flip(random), out);
  run_steps(random, out);
}

void Transformer::pad_crop(const Image& prepared, RandomStream& random, uint8_t* out) const {
  const int padding = augmentation_.padding, width = prepared.width(), height = prepared.height();
  const int top = int(random.below(uint32_t(height + 2 * padding - height_ + 1))) - padding;
  const int left = int(random.below(uint32_t(width + 2 * padding - width_ + 1))) - padding;
  const bool flip = draw_flip(random);
  const size_t stride = size_t(width_) * size_t(channels_);
  // The picture's part of a row, before the flip: columns x0 .. x1 of the target.
  const int x0 = std::clamp(-left, 0, width_), x1 = std::clamp(width - left, x0, width_);
  const int w = x1 - x0, target_x = flip ? width_ - x1 : x0;
  for (int y = 0; y < height_; ++y, out += stride) {
    const int from = y + top;
    if (from < 0 || from >= height || w == 0) {
      std::memset(out, 0, stride);
      continue;
    }
    std::memset(out, 0, size_t(target_x) * size_t(channels_));
    copy_row(prepared.row(from) + size_t(std::max(0, left)) * size_t(channels_),
             out + size_t(target_x) * size_t(channels_), w, channels_, flip);
    std::memset(out + size_t(target_x + w) * size_t(channels_), 0,
                size_t(width_ - target_x - w) * size_t(channels_));
  }
}

}  // namespace ren::data
