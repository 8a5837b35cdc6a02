// SPDX-License-Identifier: Apache-2.0
#include "engine/range/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 1, 2);
  return {};
}

void reference(const ReferenceCall& call) {
  if (scalar_or(call, 1, 0) != 0) return;
  const double decay = scalar_or(call, 0, 0);
  for (int p = 0; p < parameters_of(call); ++p) {
    const auto& w = range_slot(call, Region::W, p);
    auto& e = range_slot(call, Region::E, p);
    for (size_t i = 0; i < w.size(); ++i) e[i] = decay * e[i] + (1 - decay) * w[i];
  }
}

}  // namespace

const OpDefinition& range_ema_definition() {
  static const OpDefinition definition{"range_ema", infer, reference, nullptr};
  return definition;
}

}  // namespace ren
