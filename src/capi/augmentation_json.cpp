// SPDX-License-Identifier: Apache-2.0
#include "capi/augmentation_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "capi/augmentation_builder.h"
#include "capi/repeated_key.h"
#include "engine/base/status.h"

namespace ren::capi {
namespace {

using data::Augmentation;
using data::Filter;
using data::Interpolation;
using Mode = Augmentation::Mode;
using nlohmann::json;

template <typename... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fail(StatusCode::invalid_argument, format, std::forward<Arguments>(arguments)...);
}

// One transform of the list, whose arguments are taken one by one.
class Entry {
 public:
  Entry(const json& object, int height, int width) : object_(object), height_(height), width_(width) {}

  // One number or a list of `count`; one number stands for all of them. Absent: the defaults.
  std::vector<double> numbers(const char* key, std::vector<double> defaults) {
    const json* const value = find(key);
    if (value == nullptr) return defaults;
    if (value->is_number()) return std::vector<double>(defaults.size(), value->get<double>());
    const bool fits = value->is_array() && value->size() == defaults.size();
    if (!fits || !std::all_of(value->begin(), value->end(), [](const json& v) { return v.is_number(); }))
      refuse("{} takes {}, not {}", key,
             defaults.size() == 1 ? "a number"
                                  : fmt::format("a number or a list of {} numbers", defaults.size()),
             value->dump());
    return value->get<std::vector<double>>();
  }
  double number(const char* key, double fallback) { return numbers(key, {fallback})[0]; }
  int whole(const char* key, int fallback) {
    const double value = number(key, fallback);
    if (!(value >= 0 && value <= 65535) || value != std::floor(value))
      refuse("{} is {}, allowed are whole numbers from 0 to 65535", key, value);
    return int(value);
  }
  Interpolation interpolation(Interpolation fallback) {
    const json* const value = find("interpolation");
    if (value == nullptr) return fallback;
    Interpolation found;
    if (value->is_string() && data::find_interpolation(value->get<std::string>(), found)) return found;
    refuse("interpolation is {}, allowed are \"nearest\", \"bilinear\" and \"bicubic\"", value->dump());
  }
  Filter filter() {
    const Interpolation value = interpolation(Interpolation::bilinear);
    if (value == Interpolation::nearest)
      refuse("interpolation is \"nearest\", resizing has \"bilinear\" and \"bicubic\"");
    return value == Interpolation::bilinear ? Filter::bilinear : Filter::bicubic;
  }
  // A crop's size may be left out; it is the model's.
  void check_size() {
    const std::vector<double> size = numbers("size", {double(height_), double(width_)});
    if (size[0] != height_ || size[1] != width_)
      refuse("size is {} x {}, the model takes {} x {}", size[0], size[1], height_, width_);
  }
  // Resize: a number is the short side, two are the model's height and width.
  int short_side() {
    const json* const value = find("size");
    if (value != nullptr && value->is_number()) return whole("size", 0);
    if (value == nullptr)
      refuse("size has to be given: the short side, or [{}, {}], the model's", height_, width_);
    check_size();
    return 0;
  }
  // RandomChoice: what it chooses from.
  const json& transforms() {
    const json* const value = find("transforms");
    if (value == nullptr || !value->is_array())
      refuse("transforms has to be given, a list: [{{\"name\": \"MixUp\"}}, {{\"name\": \"CutMix\"}}]");
    return *value;
  }
  void check_all_known() const {
    for (const auto& [key, value] : object_.items())
      if (key != "name" && known_.count(key) == 0)
        refuse("'{}' is not known; there are {}", key,
               known_.empty() ? "no arguments" : fmt::format("{}", fmt::join(known_, ", ")));
  }

 private:
  const json* find(const char* key) {
    known_.insert(key);
    return object_.contains(key) ? &object_[key] : nullptr;
  }
  const json& object_;
  int height_, width_;
  std::set<std::string> known_;
};

void add_resized_crop(Entry& entry, AugmentationBuilder& builder) {
  Augmentation& a = builder.augmentation;
  builder.set_crop(Mode::random_resized_crop, "RandomResizedCrop");
  entry.check_size();
  const auto scale = entry.numbers("scale", {0.08, 1.0}),
             ratio = entry.numbers("ratio", {3.0 / 4.0, 4.0 / 3.0});
  a.min_scale = float(scale[0]), a.max_scale = float(scale[1]);
  a.min_ratio = float(ratio[0]), a.max_ratio = float(ratio[1]);
  a.filter = entry.filter();
}

void add_resize(Entry& entry, AugmentationBuilder& builder) {
  const int short_side = entry.short_side();
  if (short_side == 0)
    builder.set_crop(Mode::resize, "Resize");
  else
    builder.set_resize_short(short_side, "Resize");
  builder.augmentation.filter = entry.filter();
}

void add_step(Entry& entry, const data::StepInfo& info, AugmentationBuilder& builder) {
  data::Step step = data::Step::with_defaults(info.kind);
  auto value = step.values.begin();
  for (const data::StepParameter& parameter : info.parameters) {
    const std::vector<double> defaults(value, value + parameter.count);
    const std::vector<double> given = entry.numbers(parameter.name, defaults);
    value = std::copy(given.begin(), given.end(), value);
  }
  if (info.takes_interpolation) step.interpolation = entry.interpolation(step.interpolation);
  entry.check_all_known();  // before what the step itself finds wrong: a misspelt argument may be the reason
  builder.add_step(step, info.torchvision_name);
}

bool is_mix(const std::string& name) { return name == "MixUp" || name == "CutMix"; }

void add_mix(const std::string& name, Entry& entry, AugmentationBuilder& builder) {
  const double alpha = entry.number("alpha", 1.0);
  entry.check_all_known();
  builder.set_mix(name == "MixUp" ? &Augmentation::mixup : &Augmentation::cutmix, alpha, name);
}

// torchvision's recipes choose between MixUp and CutMix so; of other transforms it isn't known here.
void add_choice(Entry& entry, AugmentationBuilder& builder) {
  if (builder.has_mix()) refuse("MixUp and CutMix are given more than once");
  const json& transforms = entry.transforms();
  for (const json& one : transforms) {
    const bool named = one.is_object() && one.contains("name") && one["name"].is_string();
    if (!named || !is_mix(one["name"]))
      refuse("it chooses between MixUp and CutMix alone, not {}", one.dump());
    Entry chosen(one, 0, 0);
    add_mix(one["name"], chosen, builder);
  }
  if (transforms.size() != 2) refuse("it has {} transforms, MixUp and CutMix are needed", transforms.size());
}

// What torchvision's recipes have at the end of such a list; it happens on the device here.
bool makes_floats(const std::string& name) {
  constexpr std::string_view kNames[] = {"ToTensor", "PILToTensor",       "ToImage",  "ToPureTensor",
                                         "ToDtype",  "ConvertImageDtype", "Normalize"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void add_transform(const std::string& name, Entry& entry, AugmentationBuilder& builder) {
  if (makes_floats(name))
    refuse(
        "leave it out: the device makes numbers of the bytes and normalises them; name mean and deviation "
        "with --normalize, or --mean and --std (`normalize`, `mean` and `std` of a trainer)");
  if (name == "RandomResizedCrop") {
    add_resized_crop(entry, builder);
  } else if (name == "Resize") {
    add_resize(entry, builder);
  } else if (name == "CenterCrop") {
    if (builder.augmentation.resize_short == 0) refuse("a Resize to a short side has to stand before it");
    builder.set_crop(Mode::resize_center_crop, name);
    entry.check_size();
  } else if (name == "RandomCrop") {
    builder.set_crop(Mode::pad_crop, name);
    entry.check_size();
    builder.augmentation.padding = entry.whole("padding", 0);
  } else if (name == "RandomHorizontalFlip") {
    builder.set_flip(entry.number("p", 0.5), name);
  } else if (name == "RandomChoice") {
    add_choice(entry, builder);
  } else if (is_mix(name)) {
    if (builder.has_mix())
      refuse(
          "there is MixUp or CutMix already; {{\"name\": \"RandomChoice\", \"transforms\": [...]}} takes "
          "both");
    add_mix(name, entry, builder);
  } else if (const data::StepInfo* info = data::find_step(name, &data::StepInfo::torchvision_name)) {
    add_step(entry, *info, builder);
  } else {
    std::string names = "RandomResizedCrop, Resize, CenterCrop, RandomCrop, RandomHorizontalFlip";
    for (const data::StepInfo& one : data::step_infos()) names.append(", ").append(one.torchvision_name);
    names += ", MixUp, CutMix, RandomChoice (of these two)";
    refuse("'{}' is not known; there are {}", name, names);
  }
  entry.check_all_known();
}

void add_entry(const json& object, AugmentationBuilder& builder, int height, int width) {
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string())
    refuse("it has to be an object with a name, e.g. {{\"name\": \"RandAugment\", \"num_ops\": 2}}");
  Entry entry(object, height, width);
  add_transform(object["name"], entry, builder);
  builder.augmentation.validate();  // so that an error is told with its entry
}

}  // namespace

Augmentation parse_augmentation_json(const std::string& text, const std::string& place, int height,
                                     int width) {
  constexpr int kMostDepth =
      8;  // a list of objects with lists of numbers takes 3; deeper ones would end the stack
  bool too_deep = false;
  const auto within_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep |= depth > kMostDepth;
    return !too_deep;
  };
  json list;
  try {
    list = json::parse(text, within_depth);
  } catch (const json::exception& error) {
    const std::string_view what =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1 ..."
    refuse("{}: not JSON: {}", place, what.substr(std::min(what.size(), what.find("] ") + 2)));
  }
  if (too_deep) refuse("{}: lists and objects are nested more than {} deep", place, kMostDepth);
  if (const auto repeated = find_repeated_key(text); repeated && list.is_array())
    refuse("{}, transform {}: '{}' is given more than once", place, repeated->element + 1, repeated->key);
  if (!list.is_array() || list.empty())
    refuse("{}: it has to be a list of transforms, [{{\"name\": \"RandAugment\", \"num_ops\": 2}}, ...]",
           place);
  AugmentationBuilder builder;
  for (size_t i = 0; i < list.size(); ++i) {
    try {
      add_entry(list[i], builder, height, width);
    } catch (const Error& error) {
      const bool named = list[i].is_object() && list[i].contains("name") && list[i]["name"].is_string();
      const std::string name =
          named ? fmt::format(" ({})", list[i]["name"].get<std::string>()) : std::string();
      throw Error(error.code(), fmt::format("{}, transform {}{}: {}", place, i + 1, name, error.what()));
    }
  }
  try {
    return builder.finish();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", place, error.what()));
  }
}

}  // namespace ren::capi
