// SPDX-License-Identifier: Apache-2.0
#include "importer/message_text.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace ren::importer {
namespace {

// The numbers of "1,3,32,32"; nothing when the text is anything else.
std::optional<std::vector<int64_t>> whole_numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* const last = at + text.size();
  while (true) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(at, last, number);
    if (error != std::errc()) return std::nullopt;
    numbers.push_back(number);
    if (end == last) return numbers;
    if (*end != ',') return std::nullopt;
    at = end + 1;
  }
}

std::string extent_text(int64_t extent, int64_t placeholder) {
  if (placeholder <= 1 || extent <= 0 || extent % placeholder != 0) return std::to_string(extent);
  return extent == placeholder ? "N" : fmt::format("{}N", extent / placeholder);
}

}  // namespace

std::string onnx_shapes(const std::string& text, int64_t batch_placeholder, bool channels_last) {
  std::string result;
  size_t from = 0;
  while (true) {
    const size_t open = text.find('[', from);
    const size_t close = open == std::string::npos ? open : text.find(']', open);
    if (close == std::string::npos) return result + text.substr(from);
    result += text.substr(from, open - from);
    const std::string_view inside = std::string_view(text).substr(open + 1, close - open - 1);
    auto numbers = whole_numbers(inside);
    if (!numbers) {
      result += '[';
      from = open + 1;
      continue;
    }
    if (channels_last && numbers->size() == 4)
      *numbers = {(*numbers)[0], (*numbers)[3], (*numbers)[1], (*numbers)[2]};
    std::vector<std::string> extents;
    for (const int64_t n : *numbers) extents.push_back(extent_text(n, batch_placeholder));
    result += fmt::format("[{}]", fmt::join(extents, ","));
    from = close + 1;
  }
}

}  // namespace ren::importer
