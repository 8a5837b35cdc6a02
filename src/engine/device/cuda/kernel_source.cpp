// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/kernel_source.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "engine/base/status.h"

namespace ren::cuda {

// The table that cmake/EmbedText.cmake writes.
struct EmbeddedText {
  const char* name;
  const char* text;
};
extern const EmbeddedText kEmbeddedTexts[];
extern const size_t kEmbeddedTextCount;

std::string_view embedded_source(std::string_view file) {
  for (size_t i = 0; i < kEmbeddedTextCount; ++i)
    if (file == kEmbeddedTexts[i].name) return kEmbeddedTexts[i].text;
  fail(StatusCode::internal, "no embedded kernel source {}", file);
}

std::string float_literal(float value) {
  if (!std::isfinite(value)) return fmt::format("__int_as_float(0x{:08x})", std::bit_cast<uint32_t>(value));
  return fmt::format("{:a}f /* {} */", value, value);
}

KernelSource& KernelSource::define(std::string_view name, std::string_view text) {
  defines_ += fmt::format("#define {} {}\n", name, text);
  return *this;
}
KernelSource& KernelSource::define(std::string_view name, int64_t value) {
  return define(name, value < 0 ? fmt::format("({})", value) : fmt::format("{}", value));
}
KernelSource& KernelSource::define(std::string_view name, float value) {
  return define(name, std::string_view(fmt::format("({})", float_literal(value))));
}
KernelSource& KernelSource::define(std::string_view name, DType type) {
  defines_ += fmt::format("typedef {} {};\n", name_of(type), name);
  return *this;
}
KernelSource& KernelSource::index_type(int64_t elements) {
  // Grid strides are added before the comparison with the end: leave room for one.
  const bool small = elements < (int64_t{1} << 31);
  defines_ += small ? "typedef unsigned index_t;\n" : "typedef unsigned long long index_t;\n";
  return *this;
}
KernelSource& KernelSource::insert(std::string_view mark, std::string text) {
  inserts_.emplace_back(mark, std::move(text));
  return *this;
}
KernelSource& KernelSource::prelude(std::string_view text) {
  prelude_ += text;
  return *this;
}

std::string KernelSource::text() const {
  std::string result(embedded_source("common.cuh"));
  result += defines_;
  result += prelude_;
  const std::string_view body = embedded_source(file_);
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size());
    const std::string_view line = body.substr(begin, end - begin);
    const size_t text = line.find_first_not_of(' ');
    if (text != std::string_view::npos && line.substr(text, 3) == "//@") {
      const std::string_view mark = line.substr(text + 3);
      bool found = false;
      for (const auto& [name, value] : inserts_)
        if (name == mark) result += value, found = true;
      require(found, "{}: nothing to insert at {}", file_, mark);
    } else {
      result += line;
    }
    result += '\n';
    begin = end + 1;
  }
  return result;
}

}  // namespace ren::cuda
