// SPDX-License-Identifier: Apache-2.0
#include "engine/range/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 0, 0);
  return {};
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<RangeAttributes>();
  for (int p = 0; p < parameters_of(call); ++p) {
    range_slot(call, a.target, p) = range_slot(call, a.source, p);
  }
}

}  // namespace

const OpDefinition& range_copy_definition() {
  static const OpDefinition definition{"range_copy", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
