// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"

namespace ren::cuda {

// The text of an embedded kernel source by its file name ("pool.cu"); throws internal.
std::string_view embedded_source(std::string_view file);

// One kernel source, specialised: sizes, types and generated statements become constants of it.
class KernelSource {
 public:
  explicit KernelSource(std::string_view file) : file_(file) {}

  KernelSource& define(std::string_view name, int64_t value);
  KernelSource& define(std::string_view name, float value);  // exact
  KernelSource& define(std::string_view name, std::string_view text);
  KernelSource& define(std::string_view name, DType type);        // a storage type of common.cuh
  KernelSource& index_type(int64_t elements);                     // index_t: 32 bits where they reach
  KernelSource& insert(std::string_view mark, std::string text);  // the lines that say //@MARK
  KernelSource& prelude(std::string_view text);                   // device functions before the file

  const std::string& file() const { return file_; }
  std::string text() const;

 private:
  std::string file_, defines_, prelude_;
  std::vector<std::pair<std::string, std::string>> inserts_;
};

std::string float_literal(float value);  // exact; a constant expression when finite

}  // namespace ren::cuda
