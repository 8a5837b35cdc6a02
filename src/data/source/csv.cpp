// SPDX-License-Identifier: Apache-2.0
#include "data/source/csv.h"

#include <algorithm>

namespace ren::data {
namespace {

// The length of what ends a row at the text's begin, or 0.
size_t row_end(std::string_view text) {
  if (text.starts_with('\n')) return 1;
  return text.starts_with("\r\n") ? 2 : text == "\r" ? 1 : 0;
}

}  // namespace

// Leaves `rest_` at the comma or the row's end behind the field.
CsvReader::Row CsvReader::field(std::string& out) {
  out.clear();
  if (!rest_.starts_with('"')) {
    const size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    out = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (out.ends_with('\r') && !rest_.starts_with(',')) out.pop_back();
    return Row::good;
  }
  rest_.remove_prefix(1);
  for (;;) {
    const size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) return Row::open_quote;
    line_ += std::count(rest_.begin(), rest_.begin() + ptrdiff_t(quote), '\n');
    out += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    out += '"';
    rest_.remove_prefix(1);
  }
  if (const size_t end = row_end(rest_); end == 2) rest_.remove_prefix(1);
  return rest_.empty() || rest_ == "\r" || rest_.front() == ',' || rest_.front() == '\n'
             ? Row::good
             : Row::text_behind_quote;
}

void CsvReader::pass_line() {
  const size_t end = rest_.find('\n');
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  ++line_;
}

CsvReader::Row CsvReader::next(std::vector<std::string>& fields) {
  while (row_end(rest_) != 0) pass_line();
  row_line_ = line_;
  if (rest_.empty()) return Row::end;
  size_t count = 0;
  for (;;) {
    if (fields.size() <= count) fields.emplace_back();
    if (const Row row = field(fields[count++]); row != Row::good) {
      if (row == Row::open_quote) rest_ = {};
      pass_line();
      return row;
    }
    if (!rest_.starts_with(',')) break;
    rest_.remove_prefix(1);
  }
  fields.resize(count);
  pass_line();
  return Row::good;
}

// Overlong forms, surrogates and what is beyond U+10FFFF are refused.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = uint8_t(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 ? 2 : (lead & 0xF0) == 0xE0 ? 3 : 4;
    if (lead >= 0x80 && (lead < 0xC2 || lead > 0xF4)) return false;
    if (i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((uint8_t(text[i + k]) & 0xC0) != 0x80) return false;
    const auto second = length > 1 ? uint8_t(text[i + 1]) : uint8_t{0};
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return false;
    i += length;
  }
  return true;
}

}  // namespace ren::data
