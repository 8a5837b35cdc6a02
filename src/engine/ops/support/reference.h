// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/ops/op.h"

namespace ren {

// What the naive references share.

inline size_t index_of(const Shape& s, int64_t n, int64_t h, int64_t w, int64_t c) {
  return size_t(((n * s.h + h) * s.w + w) * s.c + c);
}

// An input that may be absent: its values or nullptr.
inline const std::vector<double>* optional_input(const ReferenceCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : nullptr;
}

// An output that may be unwanted.
inline std::vector<double>* wanted_output(const ReferenceCall& call, size_t i) {
  return i < call.outputs.size() ? call.outputs[i] : nullptr;
}

// An input that the op updates in place (running statistics, device scalars, ranges). The
// values belong to the caller, who holds them as non-const.
inline std::vector<double>* updated_input(const ReferenceCall& call, size_t i) {
  return const_cast<std::vector<double>*>(optional_input(call, i));
}

}  // namespace ren
