// SPDX-License-Identifier: Apache-2.0
#include "engine/base/half.h"
#include "engine/range/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 0, 0);
  return {};
}

// Round to nearest even in the target's format; infinity beyond its range.
double rounded(double value, DType type) {
  const float f = float(value);
  return type == DType::f16 ? from_f16(to_f16(f)) : type == DType::bf16 ? from_bf16(to_bf16(f)) : f;
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<RangeAttributes>();
  for (int p = 0; p < parameters_of(call); ++p) {
    const auto& source = range_slot(call, a.source, p);
    auto& target = range_slot(call, a.target, p);
    for (size_t i = 0; i < source.size(); ++i) target[i] = rounded(source[i], a.target_type);
  }
}

}  // namespace

const OpDefinition& range_cast_definition() {
  static const OpDefinition definition{"range_cast", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
