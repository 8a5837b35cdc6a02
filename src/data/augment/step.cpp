// SPDX-License-Identifier: Apache-2.0
#include "data/augment/step.h"

#include <cmath>
#include <limits>

#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();

constexpr StepParameter kHalf{"p", 0, 1, {0.5}};
constexpr StepParameter kVerticalFlip[] = {kHalf};
constexpr StepParameter kColorJitter[] = {{"brightness", 0, 100, {0}},
                                          {"contrast", 0, 100, {0}},
                                          {"saturation", 0, 100, {0}},
                                          {"hue", 0, 0.5, {0}}};
constexpr StepParameter kRandomGrayscale[] = {{"p", 0, 1, {0.1}}};
constexpr StepParameter kGaussianBlur[] = {{"kernel_size", 1, 255, {kRequired}, 1, true},
                                           {"sigma", 0.001, 1000, {0.1, 2.0}, 2}};
constexpr StepParameter kRandomErasing[] = {kHalf,
                                            {"scale", 0, 1, {0.02, 0.33}, 2},
                                            {"ratio", 0.001, 1000, {0.3, 3.3}, 2},
                                            {"value", 0, 255, {0, 0, 0}, 3, true}};
constexpr StepParameter kRandAugment[] = {{"num_ops", 0, 100, {2}, 1, true},
                                          {"magnitude", 0, 999, {9}, 1, true},
                                          {"num_magnitude_bins", 2, 1000, {31}, 1, true}};
constexpr StepParameter kTrivialAugment[] = {{"num_magnitude_bins", 2, 1000, {31}, 1, true}};
constexpr StepParameter kAutoContrast[] = {kHalf};

const StepInfo kInfos[] = {
    {StepKind::vertical_flip, "vertical-flip", "RandomVerticalFlip", kVerticalFlip},
    {StepKind::color_jitter, "color-jitter", "ColorJitter", kColorJitter},
    {StepKind::random_grayscale, "random-grayscale", "RandomGrayscale", kRandomGrayscale},
    {StepKind::gaussian_blur, "gaussian-blur", "GaussianBlur", kGaussianBlur},
    {StepKind::random_erasing, "random-erasing", "RandomErasing", kRandomErasing},
    {StepKind::rand_augment, "rand-augment", "RandAugment", kRandAugment, true},
    {StepKind::trivial_augment_wide, "trivial-augment-wide", "TrivialAugmentWide", kTrivialAugment, true},
    {StepKind::auto_contrast, "auto-contrast", "RandomAutocontrast", kAutoContrast},
};

std::string upper(std::string_view name) {
  std::string out;
  for (const char c : name) out += c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
  return out;
}

void check_parameter(const StepInfo& info, const StepParameter& parameter, const double* values) {
  for (int i = 0; i < parameter.count; ++i) {
    if (std::isnan(values[i]) && std::isnan(parameter.defaults[size_t(i)]))
      fail(StatusCode::invalid_argument, "augmentation {}: {} has to be given", info.name,
           allowed_text(parameter));
    if (!(values[i] >= parameter.low && values[i] <= parameter.high) ||
        (parameter.whole && values[i] != std::floor(values[i])))
      fail(StatusCode::invalid_argument, "augmentation {}: {} is {}, allowed is {}", info.name,
           parameter.name, values[i], allowed_text(parameter));
  }
  if (parameter.is_range() && values[0] > values[1])
    fail(StatusCode::invalid_argument, "augmentation {}: {} goes from {} to {}: the smaller one comes first",
         info.name, parameter.name, values[0], values[1]);
}

}  // namespace

int StepInfo::value_count() const {
  int count = 0;
  for (const StepParameter& parameter : parameters) count += parameter.count;
  return count;
}

std::span<const StepInfo> step_infos() { return kInfos; }

const StepInfo& info_of(StepKind kind) { return kInfos[size_t(kind) - 1]; }

const StepInfo* find_step(std::string_view name, const char* StepInfo::*which) {
  for (const StepInfo& info : kInfos)
    if (name == info.*which) return &info;
  return nullptr;
}

std::string allowed_text(const StepParameter& parameter) {
  return fmt::format("{} from {} to {}{}", parameter.name, parameter.low, parameter.high,
                     parameter.whole ? " (a whole number)" : "");
}

std::string signature_text(const StepInfo& info) {
  std::string text = info.name, closing;
  char separator = ':';
  for (const StepParameter& parameter : info.parameters) {
    const bool optional = !std::isnan(parameter.defaults[0]);
    const std::string name = upper(parameter.name);
    if (optional) text += "[", closing += "]";
    text += parameter.is_range() ? fmt::format("{0}{1}-MIN,{1}-MAX", separator, name)
                                 : fmt::format("{}{}", separator, name);
    separator = ',';
  }
  return text + closing + (info.takes_interpolation ? "[:nearest|bilinear|bicubic]" : "");
}

Step Step::with_defaults(StepKind kind) {
  Step step;
  step.kind = kind;
  size_t at = 0;
  for (const StepParameter& parameter : info_of(kind).parameters)
    for (int i = 0; i < parameter.count; ++i) step.values[at++] = parameter.defaults[size_t(i)];
  return step;
}

void Step::validate() const {
  const StepInfo& info = info_of(kind);
  size_t at = 0;
  for (const StepParameter& parameter : info.parameters) {
    check_parameter(info, parameter, &values[at]);
    at += size_t(parameter.count);
  }
  if (kind == StepKind::gaussian_blur && std::fmod(values[0], 2.0) != 1.0)
    fail(StatusCode::invalid_argument, "augmentation gaussian-blur: kernel_size is {}, it has to be odd",
         values[0]);
  if (kind == StepKind::rand_augment && values[1] >= values[2])
    fail(StatusCode::invalid_argument,
         "augmentation rand-augment: magnitude is {}, allowed is 0 to {} (num_magnitude_bins - 1)", values[1],
         values[2] - 1);
  if (kind == StepKind::color_jitter && values[0] == 0 && values[1] == 0 && values[2] == 0 && values[3] == 0)
    fail(StatusCode::invalid_argument,
         "augmentation color-jitter changes nothing: give brightness, contrast, saturation or hue");
}

std::string Step::text() const {
  const StepInfo& info = info_of(kind);
  const std::span<const double> used(values.data(), size_t(info.value_count()));
  return fmt::format("{}:{}{}", info.name, fmt::join(used, ","),
                     info.takes_interpolation ? fmt::format(":{}", name_of(interpolation)) : std::string());
}

bool find_interpolation(std::string_view name, Interpolation& out) {
  for (const Interpolation one : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    if (name != name_of(one)) continue;
    out = one;
    return true;
  }
  return false;
}

const char* name_of(Interpolation interpolation) {
  return interpolation == Interpolation::nearest    ? "nearest"
         : interpolation == Interpolation::bilinear ? "bilinear"
                                                    : "bicubic";
}

}  // namespace ren::data
