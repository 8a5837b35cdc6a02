// SPDX-License-Identifier: Apache-2.0
#include "engine/range/range.h"

#include "engine/ops/support/infer.h"

namespace ren {

std::string RangeAttributes::text() const {
  return fmt::format("{} -> {} {}", name_of(source), name_of(target), name_of(target_type));
}

std::string LossScaleAttributes::text() const {
  if (!enabled) return "count steps only";
  return fmt::format("growth={} backoff={} floor={} ceiling={} interval={}", growth, backoff, floor, ceiling,
                     growth_interval);
}

std::string OptimizerAttributes::text() const {
  return fmt::format("{}{}{}",
                     nesterov       ? "nesterov"
                     : use_momentum ? "momentum"
                                    : "plain",
                     has_copy ? " copy=" : "", has_copy ? name_of(copy_type) : "");
}

void check_scalars(const Node& node, std::span<const TensorType> inputs, size_t least, size_t most) {
  check_arity(node, inputs, least, most);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (has_input(node, i) && inputs[i].shape.elements() != 1)
      fail(StatusCode::internal, "input {} of {} is no scalar but {}", i, name_of(node.op),
           to_string(inputs[i].shape));
}

}  // namespace ren
