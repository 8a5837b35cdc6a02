// SPDX-License-Identifier: Apache-2.0
#include "cli/values.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

namespace ren::cli {
namespace {

template <typename T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || error != std::errc() || end != last) return std::nullopt;
  return value;
}

std::string refusal(const std::string& given, const std::string& wanted) {
  return fmt::format("'{}' is not {}", given, wanted);
}

std::string described(const std::string& text, const std::string& wanted, const std::string& preset) {
  return fmt::format("{} ({}{}{})", text, wanted, wanted.empty() || preset.empty() ? "" : "; ",
                     preset.empty() ? "" : "default: " + preset);
}

template <typename T>
CLI::Option* add_range(CLI::App& command, const char* name, T& value, T least, T most,
                       const std::string& text) {
  const std::string range = std::is_signed_v<T> && most == std::numeric_limits<T>::max()
                                ? fmt::format("at least {}", least)
                                : fmt::format("{} to {}", least, most);
  const std::string wanted =
      fmt::format("a whole number {}", range.starts_with("at") ? "of " + range : "from " + range);
  // It transforms, since CLI11 would read leading zeros as octal.
  return command.add_option(name, value, described(text, range, std::to_string(value)))
      ->type_name("N")
      ->transform(CLI::Validator(
          [=](std::string& given) {
            const auto parsed = parse<T>(given);
            if (!parsed || *parsed < least || *parsed > most) return refusal(given, wanted);
            given = std::to_string(*parsed);
            return std::string();
          },
          ""));
}

bool is_within(double value, Bounds bounds, double limit) {
  switch (bounds) {
    case Bounds::any:
      return std::isfinite(value);
    case Bounds::positive:
      return std::isfinite(value) && value > 0;
    case Bounds::not_negative:
      return std::isfinite(value) && value >= 0;
    case Bounds::below:
      return value >= 0 && value < limit;
  }
  return false;
}

std::string range_text(Bounds bounds, double limit) {
  switch (bounds) {
    case Bounds::any:
      return "";
    case Bounds::positive:
      return "above 0";
    case Bounds::not_negative:
      return "at least 0";
    case Bounds::below:
      return fmt::format("at least 0 and below {}", limit);
  }
  return "";
}

CLI::Validator within(Bounds bounds, double limit) {
  const std::string range = range_text(bounds, limit);
  const std::string wanted = fmt::format("a finite number{}{}",
                                         range.starts_with("at") ? " of "
                                         : range.empty()         ? ""
                                                                 : " ",
                                         range);
  return CLI::Validator(
      [=](std::string& given) {
        const auto parsed = parse<double>(given);
        return parsed && is_within(*parsed, bounds, limit) ? std::string() : refusal(given, wanted);
      },
      "");
}

}  // namespace

CLI::Option* add_whole(CLI::App& command, const char* name, int64_t& value, int64_t least, int64_t most,
                       const std::string& text) {
  return add_range(command, name, value, least, most, text);
}

CLI::Option* add_whole(CLI::App& command, const char* name, int& value, int least, int most,
                       const std::string& text) {
  return add_range(command, name, value, least, most, text);
}

CLI::Option* add_whole(CLI::App& command, const char* name, uint64_t& value, const std::string& text) {
  return add_range(command, name, value, uint64_t{0}, std::numeric_limits<uint64_t>::max(), text);
}

CLI::Option* add_number(CLI::App& command, const char* name, double& value, Bounds bounds,
                        const std::string& text, bool tell_default, double limit) {
  return command
      .add_option(name, value,
                  described(text, range_text(bounds, limit), tell_default ? fmt::format("{}", value) : ""))
      ->type_name("X")
      ->check(within(bounds, limit));
}

CLI::Option* add_numbers(CLI::App& command, const char* name, std::vector<float>& values, Bounds bounds,
                         const std::string& text) {
  return command.add_option(name, values, text)
      ->type_name("X,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(within(bounds, 0));
}

CLI::Option* add_choice(CLI::App& command, const char* name, std::string& value,
                        const std::vector<std::string>& choices, const std::string& text) {
  const std::string all = fmt::format("{}", fmt::join(choices, ", "));
  return command.add_option(name, value, described(text, all, value))
      ->type_name("NAME")
      ->check(CLI::Validator(
          [=](std::string& given) {
            for (const std::string& choice : choices)
              if (given == choice) return std::string();
            return refusal(given, "one of " + all);
          },
          ""));
}

}  // namespace ren::cli
