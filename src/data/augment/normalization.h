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
inline constexpr Normalization kNormalizeCifar100{{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}};
inline constexpr Normalization kNormalizeMnist{{0.1307f, 0.1307f, 0.1307f}, {0.3081f, 0.3081f, 0.3081f}};
inline constexpr Normalization kNormalizeClip{{0.48145466f, 0.4578275f, 0.40821073f},
                                              {0.26862954f, 0.26130258f, 0.27577711f}};

// "none", "half", "imagenet", "cifar10", "cifar100", "mnist" or "clip"; nullptr for any other name.
constexpr const Normalization* find_normalization(std::string_view name) {
  if (name == "none") return &kNormalizeNone;
  if (name == "half") return &kNormalizeHalf;
  if (name == "imagenet") return &kNormalizeImagenet;
  if (name == "cifar10") return &kNormalizeCifar10;
  if (name == "cifar100") return &kNormalizeCifar100;
  if (name == "mnist") return &kNormalizeMnist;
  if (name == "clip") return &kNormalizeClip;
  return nullptr;
}

}  // namespace ren::data
