// SPDX-License-Identifier: Apache-2.0
#include "data/source/labels.h"

#include <charconv>

namespace ren::data {
namespace {

// Written as a program writes it: "7", "-1"; not "07", "+7" or "7.0".
bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// -1: out of range.
int64_t class_number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value >= 0 && value < kMostClasses ? value : -1;
}

}  // namespace

void Tally::report(Problems& problems, const std::string& where, const char* one, const char* many,
                   const char* remedy) const {
  if (count_ == 0) return;
  const std::string more = count_ > kShown ? fmt::format(" and {} more", count_ - kShown) : "";
  problems.add(where, fmt::format("{} {}: {}{}", count_, count_ == 1 ? one : many, places_, more), remedy);
}

int32_t LabelTexts::add(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  if (int64_t(ids_.size()) >= kMostClasses)
    fail(StatusCode::invalid_data, "there are more than {} different labels", kMostClasses);
  return ids_.emplace(text, int32_t(ids_.size())).first->second;
}

std::string LabelTexts::mixture() const {
  const std::string* number = nullptr;
  const std::string* name = nullptr;
  for (const auto& [text, id] : ids_) (is_whole_number(text) ? number : name) = &text;
  if (number == nullptr || name == nullptr) return {};
  return fmt::format(
      "all labels are taken as names, since not all are whole numbers: '{}' is none, '{}' is one", *name,
      *number);
}

std::vector<std::string> LabelTexts::settle(std::vector<int32_t>& labels, const std::string& where,
                                            Problems& problems) const {
  const bool numbers =
      std::all_of(ids_.begin(), ids_.end(), [](const auto& i) { return is_whole_number(i.first); });
  std::vector<int32_t> label_of(ids_.size());
  std::vector<std::string> classes;
  Tally out_of_range;
  int64_t most = -1;
  for (const auto& [text, id] : ids_) {
    if (!numbers) {
      label_of[size_t(id)] = int32_t(classes.size());
      classes.push_back(text);
      continue;
    }
    const int64_t number = class_number(text);
    if (number < 0) out_of_range.add(text);
    most = std::max(most, number);
    label_of[size_t(id)] = int32_t(std::max<int64_t>(number, 0));
  }
  out_of_range.report(problems, where, "label is out of range", "labels are out of range",
                      "number the classes from 0, at most to 999999");
  if (numbers && out_of_range.empty()) classes = numbered_classes(most + 1);
  for (int32_t& label : labels)
    if (label >= 0) label = label_of[size_t(label)];
  return classes;
}

std::vector<std::string> numbered_classes(int64_t count) {
  std::vector<std::string> classes;
  for (int64_t i = 0; i < count; ++i) classes.push_back(fmt::format("{}", i));
  return classes;
}

bool are_numbered(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i)
    if (classes[i] != fmt::format_int(i).c_str()) return false;
  return true;
}

}  // namespace ren::data
