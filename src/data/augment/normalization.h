// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace ren::data {

// (pixel / 255 - mean) / std for each channel. It is applied on the device: batches are
// raw bytes. For one channel the first value counts.
struct Normalization {
  std::array<float, 3> mean{0.0f, 0.0f, 0.0f};
  std::array<float, 3> std{1.0f, 1.0f, 1.0f};
};

inline constexpr Normalization kNormalizeNone{};
inline constexpr Normalization kNormalizeHalf{{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};
inline constexpr Normalization kNormalizeImagenet{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
inline constexpr Normalization kNormalizeCifar10{{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

// "none", "half", "imagenet" or "cifar10"; nullptr for any other name.
constexpr const Normalization* find_normalization(std::string_view name) {
  if (name == "none") return &kNormalizeNone;
  if (name == "half") return &kNormalizeHalf;
  if (name == "imagenet") return &kNormalizeImagenet;
  if (name == "cifar10") return &kNormalizeCifar10;
  return nullptr;
}

}  // namespace ren::data
