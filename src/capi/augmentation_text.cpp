// SPDX-License-Identifier: Apache-2.0
#include "capi/augmentation_text.h"

#include <cctype>
#include <charconv>
#include <string_view>
#include <vector>

#include "capi/augmentation_builder.h"
#include "capi/augmentation_json.h"
#include "engine/base/file.h"
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

// Items are separated by commas, as are an item's numbers: what begins as a number does belongs to the item
// before.
std::vector<std::string_view> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  for (const std::string_view part : split(text, ',')) {
    const bool number = !part.empty() && (std::isdigit(uint8_t(part[0])) || part[0] == '.' || part[0] == '-');
    if (number && !items.empty())
      items.back() = {items.back().data(), size_t(part.data() + part.size() - items.back().data())};
    else
      items.push_back(part);
  }
  return items;
}

double number(std::string_view text, std::string_view item) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    fail(StatusCode::invalid_argument, "augmentation '{}': '{}' is not a number", item, text);
  return value;
}

int whole(std::string_view text, std::string_view item) {
  const double value = number(text, item);
  if (!(value >= 0 && value <= 1e6) || value != double(int(value)))
    fail(StatusCode::invalid_argument, "augmentation '{}' takes whole pixels", item);
  return int(value);
}

// MIN[-MAX]
void read_range(std::string_view text, std::string_view item, float& low, float& high) {
  const auto range = split(text, '-');
  if (range.size() > 2) fail(StatusCode::invalid_argument, "augmentation '{}' takes MIN or MIN-MAX", item);
  low = float(number(range[0], item));
  if (range.size() == 2) high = float(number(range[1], item));
}

void read_resized_crop(std::string_view value, std::string_view item, Augmentation& a) {
  const auto ranges = split(value, ',');
  if (ranges.size() > 2)
    fail(StatusCode::invalid_argument, "augmentation '{}' takes a range of shares and one of ratios", item);
  read_range(ranges[0], item, a.min_scale, a.max_scale);
  if (ranges.size() == 2) read_range(ranges[1], item, a.min_ratio, a.max_ratio);
}

// The numbers fill the parameters in their order; of one that takes several, one number stands for all.
data::Step read_step(const data::StepInfo& info, std::string_view value, std::string_view item) {
  data::Step step = data::Step::with_defaults(info.kind);
  const size_t colon = value.find(':');
  if (colon != std::string_view::npos || (!value.empty() && std::isalpha(uint8_t(value[0])))) {
    const std::string_view word = value.substr(colon == std::string_view::npos ? 0 : colon + 1);
    if (!info.takes_interpolation || !data::find_interpolation(word, step.interpolation))
      fail(StatusCode::invalid_argument, "augmentation '{}': it is written {}", item,
           data::signature_text(info));
    value = value.substr(0, colon == std::string_view::npos ? 0 : colon);
    if (value.empty()) return step;
  }
  const auto given = split(value, ',');
  size_t used = 0, at = 0;
  for (const data::StepParameter& parameter : info.parameters) {
    const size_t left = given.size() - used, count = size_t(parameter.count);
    if (left == 0) break;
    if (left != 1 && left < count)
      fail(StatusCode::invalid_argument, "augmentation '{}': {} takes {} numbers or one", item,
           parameter.name, count);
    for (size_t i = 0; i < count; ++i) step.values[at + i] = number(given[used + (left == 1 ? 0 : i)], item);
    used += left == 1 ? 1 : count;
    at += count;
  }
  if (used < given.size())
    fail(StatusCode::invalid_argument, "augmentation '{}': too many numbers; it is written {}", item,
         data::signature_text(info));
  return step;
}

[[noreturn]] void refuse_unknown(std::string_view item) {
  std::string names =
      "none, auto, exact, flip[:P], pad-crop[:PIXELS], random-resized-crop[:MIN[-MAX[,RATIO-RATIO]]], "
      "center-crop[:SHORT], resize[:SHORT], bilinear, bicubic, mixup[:ALPHA], cutmix[:ALPHA]";
  for (const data::StepInfo& info : data::step_infos()) names.append(", ").append(data::signature_text(info));
  fail(StatusCode::invalid_argument, "augmentation '{}' is not known; there are {}", item, names);
}

// One item of a list: its name, and what stands behind the colon.
struct Item {
  std::string_view text, name, value;
  bool has_value;

  explicit Item(std::string_view item)
      : text(item),
        name(item.substr(0, item.find(':'))),
        value(item.substr(std::min(item.size(), name.size() + 1))),
        has_value(name.size() < item.size()) {}
};

bool add_crop(const Item& item, AugmentationBuilder& builder) {
  Augmentation& a = builder.augmentation;
  if (item.name == "exact") {
    builder.set_crop(Mode::none, item.text);
  } else if (item.name == "pad-crop") {
    builder.set_crop(Mode::pad_crop, item.text);
    if (item.has_value) a.padding = whole(item.value, item.text);
  } else if (item.name == "center-crop") {
    if (item.has_value && a.resize_short > 0)
      fail(StatusCode::invalid_argument, "augmentation '{}': the short side is given twice", item.text);
    builder.set_crop(Mode::resize_center_crop, item.text);
    if (item.has_value) a.resize_short = whole(item.value, item.text);
  } else if (item.name == "random-resized-crop") {
    builder.set_crop(Mode::random_resized_crop, item.text);
    if (item.has_value) read_resized_crop(item.value, item.text, a);
  } else if (item.name == "resize" && item.has_value) {
    builder.set_resize_short(whole(item.value, item.text), item.text);
  } else if (item.name == "resize") {
    builder.set_crop(Mode::resize, item.text);
  } else {
    return false;
  }
  return true;
}

void add_item(const Item& item, AugmentationBuilder& builder, int height, int width) {
  const bool alone = item.name == "none" || item.name == "auto" || item.name == "exact" ||
                     item.name == "bilinear" || item.name == "bicubic";
  if (alone && item.has_value)
    fail(StatusCode::invalid_argument, "augmentation '{}' takes no value", item.text);
  if (item.name == "auto") {
    builder.set_auto(height, width, item.text);
  } else if (item.name == "flip") {
    builder.set_flip(item.has_value ? number(item.value, item.text) : 0.5, item.text);
  } else if (item.name == "bilinear" || item.name == "bicubic") {
    builder.augmentation.filter = item.name == "bilinear" ? data::Filter::bilinear : data::Filter::bicubic;
  } else if (item.name == "mixup" || item.name == "cutmix") {
    builder.set_mix(item.name == "mixup" ? &Augmentation::mixup : &Augmentation::cutmix,
                    item.has_value ? number(item.value, item.text) : 1.0, item.text);
  } else if (const data::StepInfo* info = data::find_step(item.name, &data::StepInfo::name)) {
    builder.add_step(
        item.has_value ? read_step(*info, item.value, item.text) : data::Step::with_defaults(info->kind),
        item.text);
  } else if (!add_crop(item, builder)) {
    refuse_unknown(item.text);
  }
}

}  // namespace

Augmentation parse_augmentation(const std::string& text, int height, int width) {
  if (text.ends_with(".json"))
    return parse_augmentation_json(read_file(text), fmt::format("'{}'", text), height, width);
  if (text.starts_with("[")) return parse_augmentation_json(text, "augmentation", height, width);
  if (text == "none") return Augmentation::eval();
  AugmentationBuilder builder;
  for (const std::string_view part : items_of(text)) {
    const Item item(part);
    if (item.name == "none" && !item.has_value)
      fail(StatusCode::invalid_argument, "augmentation '{}' stands alone", item.name);
    add_item(item, builder, height, width);
  }
  return builder.finish();
}

namespace {

std::string crop_text(const Augmentation& a) {
  const Augmentation defaults;
  const bool usual_ratio = a.min_ratio == defaults.min_ratio && a.max_ratio == defaults.max_ratio;
  switch (a.mode) {
    case Mode::none:
      return "exact";
    case Mode::random_resized_crop:
      return fmt::format("random-resized-crop:{}-{}{}", a.min_scale, a.max_scale,
                         usual_ratio ? "" : fmt::format(",{}-{}", a.min_ratio, a.max_ratio));
    case Mode::resize_center_crop:
      if (a.resize_short == 0) return {};
      return a.keep_exact_size ? fmt::format("center-crop:{}", a.resize_short)
                               : fmt::format("resize:{},center-crop", a.resize_short);
    case Mode::pad_crop:
      return a.resize_short > 0 ? fmt::format("resize:{},pad-crop:{}", a.resize_short, a.padding)
                                : fmt::format("pad-crop:{}", a.padding);
    case Mode::resize:
      return "resize";
  }
  return {};
}

}  // namespace

std::string augmentation_text(const Augmentation& a) {
  std::vector<std::string> items;
  if (std::string crop = crop_text(a); !crop.empty()) items.push_back(std::move(crop));
  if (a.flip > 0) items.push_back(fmt::format("flip:{}", a.flip));
  for (const data::Step& step : a.steps) items.push_back(step.text());
  if (a.filter == data::Filter::bicubic) items.push_back("bicubic");
  if (a.mixup > 0) items.push_back(fmt::format("mixup:{}", a.mixup));
  if (a.cutmix > 0) items.push_back(fmt::format("cutmix:{}", a.cutmix));
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ","));
}

}  // namespace ren::capi
