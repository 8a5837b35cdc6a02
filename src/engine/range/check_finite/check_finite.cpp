// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "engine/range/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer_check(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 2, 2);
  return {};
}

std::vector<TensorType> infer_update(const Node& node, std::span<const TensorType> inputs) {
  check_scalars(node, inputs, 6, 6);
  return {};
}

void reference_check(const ReferenceCall& call) {
  const double scale = (*call.inputs[0])[0];
  const Region target = call.node.as<RangeAttributes>().target;
  bool finite = true;
  for (int p = 0; p < parameters_of(call); ++p)
    for (double& g : range_slot(call, target, p)) {
      g /= scale;
      finite &= std::isfinite(g);
    }
  (*updated_input(call, 1))[0] = finite ? 0 : 1;
}

void reference_update(const ReferenceCall& call) {
  const auto& a = call.node.as<LossScaleAttributes>();
  const auto value = [&](size_t i) -> double& { return (*updated_input(call, i))[0]; };
  double &overflow = value(0), &scale = value(1), &tracker = value(2), &skipped = value(3),
         &in_a_row = value(4);
  value(5) += 1;
  if (!a.enabled) return;
  if (overflow != 0) {
    scale = std::max<double>(scale * a.backoff, a.floor);
    tracker = 0;
    skipped += 1;
    in_a_row += 1;
    return;
  }
  in_a_row = 0;
  tracker += 1;
  if (tracker < a.growth_interval) return;
  scale = std::min<double>(scale * a.growth, a.ceiling);
  tracker = 0;
}

}  // namespace

const OpDefinition& range_check_finite_definition() {
  static const OpDefinition definition{"range_check_finite", infer_check, reference_check, nullptr};
  return definition;
}

const OpDefinition& range_update_loss_scale_definition() {
  static const OpDefinition definition{"range_update_loss_scale", infer_update, reference_update, nullptr};
  return definition;
}

}  // namespace ren
