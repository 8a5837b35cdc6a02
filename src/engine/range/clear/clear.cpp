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
    auto& target = range_slot(call, a.target, p);
    target.assign(target.size(), 0.0);
  }
}

}  // namespace

const OpDefinition& range_clear_definition() {
  static const OpDefinition definition{"range_clear", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
