// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/ops/op.h"

namespace ren {

// What `infer` functions share. Absent optional inputs are kNoTensor in the node; their
// entry among the types means nothing.

inline bool has_input(const Node& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoTensor;
}

constexpr bool is_float(DType type) { return type == DType::f32 || is_16bit(type); }

// Between `least` and `most` inputs, the first `least` of them present.
inline void check_arity(const Node& node, std::span<const TensorType> inputs, size_t least, size_t most) {
  if (inputs.size() < least || inputs.size() > most)
    fail(StatusCode::invalid_model, "{} takes {} to {} inputs and got {}", name_of(node.op), least, most,
         inputs.size());
  for (size_t i = 0; i < least; ++i)
    if (!has_input(node, i))
      fail(StatusCode::invalid_model, "input {} of {} is missing", i, name_of(node.op));
}

inline void check_float(const char* what, const TensorType& type) {
  if (!is_float(type.dtype))
    fail(StatusCode::unsupported, "{} has type {}; floating point is needed", what, name_of(type.dtype));
}

// A vector with one value a channel, as biases, scales and running statistics are.
inline void check_channel_vector(const char* what, const TensorType& type, int64_t channels) {
  if (type.shape != Shape{1, 1, 1, channels})
    fail(StatusCode::invalid_model, "{} has shape {}; {} values, one a channel, are needed", what,
         to_string(type.shape), channels);
}

// Two shapes that must be one.
inline void check_same_shape(const char* what, const Shape& found, const Shape& wanted) {
  if (found != wanted)
    fail(StatusCode::invalid_model, "{} has shape {} where {} is needed", what, to_string(found),
         to_string(wanted));
}

}  // namespace ren
