// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ren::data {

// Reads CSV as RFC 4180 has it: fields may be quoted, quotes in them doubled, rows end with LF or CRLF.
// Empty rows are passed over.
class CsvReader {
 public:
  enum class Row { good, end, open_quote, text_behind_quote };

  explicit CsvReader(std::string_view text) : rest_(text) {}

  Row next(std::vector<std::string>& fields);
  int64_t line() const { return row_line_; }  // of the row's beginning, from 1

 private:
  Row field(std::string& out);
  void pass_line();

  std::string_view rest_;
  int64_t line_ = 1, row_line_ = 1;
};

bool is_utf8(std::string_view text);

}  // namespace ren::data
