// SPDX-License-Identifier: Apache-2.0
// Patterns with braces, as shells and WebDataset write them: "shards-{0000..0009}.tar", "{train,val}.tar".
#include <charconv>

#include "data/source/labelled.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr size_t kMostNames = 100'000;

[[noreturn]] void fail_pattern(std::string_view pattern, const std::string& what) {
  fail(StatusCode::invalid_argument, "'{}' {}: write e.g. shards-{{0000..0009}}.tar or {{train,val}}.tar",
       pattern, what);
}

// "0000..0009": false when it is no such thing.
bool add_range(std::string_view inside, std::string_view pattern, std::vector<std::string>& out) {
  const size_t dots = inside.find("..");
  if (dots == std::string_view::npos) return false;
  const std::string_view first = inside.substr(0, dots), last = inside.substr(dots + 2);
  uint64_t from = 0, to = 0;
  const auto read = [](std::string_view text, uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && text.size() <= 18 && error == std::errc() && end == text.data() + text.size();
  };
  if (!read(first, from) || !read(last, to)) return false;
  if (to < from || to - from >= kMostNames)
    fail_pattern(pattern, fmt::format("has a range that is empty or longer than {}", kMostNames));
  const bool padded = (first.size() > 1 && first.front() == '0') || (last.size() > 1 && last.front() == '0');
  const size_t width = padded ? std::max(first.size(), last.size()) : 0;
  for (uint64_t i = from; i <= to; ++i) out.push_back(fmt::format("{:0{}}", i, width));
  return true;
}

std::vector<std::string> alternatives(std::string_view inside, std::string_view pattern) {
  std::vector<std::string> out;
  if (add_range(inside, pattern, out)) return out;
  if (inside.find(',') == std::string_view::npos)
    fail_pattern(pattern, "has braces without a range or a list");
  for (size_t begin = 0; begin <= inside.size();) {
    const size_t end = std::min(inside.find(',', begin), inside.size());
    out.emplace_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  std::vector<std::string> names = {""};
  std::string_view rest = pattern;
  while (!rest.empty()) {
    const size_t open = std::min(rest.find('{'), rest.size());
    for (std::string& name : names) name += rest.substr(0, open);
    rest.remove_prefix(open);
    if (rest.empty()) break;
    const size_t close = rest.find('}');
    if (close == std::string_view::npos) fail_pattern(pattern, "has a brace that isn't closed");
    std::vector<std::string> longer;
    const std::vector<std::string> middles = alternatives(rest.substr(1, close - 1), pattern);
    if (names.size() * middles.size() > kMostNames)
      fail_pattern(pattern, fmt::format("stands for more than {} names", kMostNames));
    for (const std::string& name : names)
      for (const std::string& middle : middles) longer.push_back(name + middle);
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace ren::data
