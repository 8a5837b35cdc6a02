// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace ren {

enum class Scalar : uint8_t {
#define REN_SCALAR(name, type, components, source, meaning) name,
#include "engine/ir/scalar_list.def"
#undef REN_SCALAR
};

enum class ScalarSource : uint8_t { record, state };

struct ScalarInfo {
  const char* name;
  DType type;
  int components;
  ScalarSource source;
  const char* meaning;
};

constexpr ScalarInfo kScalars[] = {
#define REN_SCALAR(name, type, components, source, meaning) \
  {#name, DType::type, components, ScalarSource::source, meaning},
#include "engine/ir/scalar_list.def"
#undef REN_SCALAR
};
constexpr int kScalarCount = int(sizeof kScalars / sizeof kScalars[0]);

constexpr int kStepRecordBytes = 256;

// Where a record scalar lies in the step record, in bytes; -1 for state scalars.
constexpr int record_offset(Scalar wanted) {
  int offset = 0;
  for (int i = 0; i < kScalarCount; ++i) {
    if (kScalars[i].source != ScalarSource::record) continue;
    if (i == int(wanted)) return offset;
    offset += 4 * kScalars[i].components;
  }
  return -1;
}

}  // namespace ren
