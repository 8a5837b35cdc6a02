// SPDX-License-Identifier: Apache-2.0
#include "capi/augmentation_text.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace ren::capi {
namespace {

using data::Augmentation;
using Mode = Augmentation::Mode;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

float number(std::string_view text, std::string_view item) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    fail(StatusCode::invalid_argument, "augmentation '{}': '{}' is not a number", item, text);
  return value;
}

int whole(std::string_view text, std::string_view item) {
  const float value = number(text, item);
  if (!(value >= 0 && value <= 1e6f) || value != float(int(value)))
    fail(StatusCode::invalid_argument, "augmentation '{}' takes whole pixels", item);
  return int(value);
}

void set_mode(Augmentation& a, Mode mode, bool& chosen, std::string_view item) {
  if (chosen)
    fail(StatusCode::invalid_argument, "augmentation '{}': only one way to crop can be given", item);
  chosen = true;
  a.mode = mode;
}

}  // namespace

Augmentation parse_augmentation(const std::string& text, int height, int width) {
  Augmentation a = Augmentation::eval();
  bool has_mode = false;
  const auto parts = split(text, ',');
  for (const std::string_view item : parts) {
    const size_t colon = item.find(':');
    const std::string_view name = item.substr(0, colon);
    const bool has_value = colon != std::string_view::npos;
    const std::string_view value = has_value ? item.substr(colon + 1) : std::string_view();
    const bool alone =
        name == "none" || name == "auto" || name == "exact" || name == "bilinear" || name == "bicubic";
    if (alone && has_value) fail(StatusCode::invalid_argument, "augmentation '{}' takes no value", item);
    if (name == "none" || name == "auto") {
      if (parts.size() > 1) fail(StatusCode::invalid_argument, "augmentation '{}' stands alone", name);
      return name == "none" ? Augmentation::eval() : Augmentation::train(height, width);
    }
    if (name == "flip") {
      a.flip = has_value ? number(value, item) : 0.5f;
    } else if (name == "exact") {
      set_mode(a, Mode::none, has_mode, item);
    } else if (name == "pad-crop") {
      set_mode(a, Mode::pad_crop, has_mode, item);
      if (has_value) a.padding = whole(value, item);
    } else if (name == "center-crop") {
      set_mode(a, Mode::resize_center_crop, has_mode, item);
      if (has_value) a.resize_short = whole(value, item);
    } else if (name == "random-resized-crop") {
      set_mode(a, Mode::random_resized_crop, has_mode, item);
      const auto range = split(value, '-');
      if (has_value) a.min_scale = number(range[0], item);
      if (range.size() > 2)
        fail(StatusCode::invalid_argument, "augmentation '{}' takes MIN or MIN-MAX", item);
      if (range.size() == 2) a.max_scale = number(range[1], item);
    } else if (name == "bilinear" || name == "bicubic") {
      a.filter = name == "bilinear" ? data::Filter::bilinear : data::Filter::bicubic;
    } else {
      fail(StatusCode::invalid_argument,
           "augmentation '{}' is not known; there are none, auto, exact, flip[:P], pad-crop[:PIXELS], "
           "random-resized-crop[:MIN[-MAX]], center-crop[:SHORT], bilinear, bicubic",
           item);
    }
  }
  a.validate();
  return a;
}

std::string augmentation_text(const Augmentation& a) {
  std::vector<std::string> items;
  switch (a.mode) {
    case Mode::none:
      items.push_back("exact");
      break;
    case Mode::random_resized_crop:
      items.push_back(fmt::format("random-resized-crop:{}-{}", a.min_scale, a.max_scale));
      break;
    case Mode::resize_center_crop:
      if (a.resize_short > 0) items.push_back(fmt::format("center-crop:{}", a.resize_short));
      break;
    case Mode::pad_crop:
      items.push_back(fmt::format("pad-crop:{}", a.padding));
      break;
  }
  if (a.flip > 0) items.push_back(fmt::format("flip:{}", a.flip));
  if (a.filter == data::Filter::bicubic) items.push_back("bicubic");
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ","));
}

}  // namespace ren::capi
