// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/memory_plan.h"

#include <algorithm>
#include <tuple>

#include "engine/base/status.h"

namespace ren {

const char* name_of(Role role) {
  switch (role) {
    case Role::step:
      return "step";
    case Role::accumulate:
      return "accumulate";
    case Role::evaluate:
      return "evaluate";
    case Role::predict:
      return "predict";
  }
  return "?";
}

Extent MemoryPlan::region(Region region, Role role) const {
  return data_.roles[size_t(role)].regions[size_t(region)];
}

uint64_t MemoryPlan::offset(size_t variant, TensorId tensor) const {
  return data_.variants.at(variant).offsets.at(size_t(tensor));
}

uint64_t MemoryPlan::workspace(size_t variant, size_t node) const {
  return data_.variants.at(variant).workspaces.at(node);
}

uint64_t MemoryPlan::slot_offset(Region family, int32_t parameter) const {
  require(is_parameter_family(family), "region {} has no slots", name_of(family));
  for (const Slot& slot : data_.slots)
    if (slot.parameter == parameter) return family == Region::A ? slot.offset / 2 : slot.offset;
  fail(StatusCode::internal, "parameter {} has no slot", parameter);
}

std::vector<int32_t> gradient_order(const Graph& step_graph) {
  using Moment = std::tuple<bool, size_t, size_t, int32_t>;  // without a gradient, node, output, parameter
  std::vector<Moment> moments;
  for (size_t p = 0; p < step_graph.parameters.size(); ++p) moments.emplace_back(true, 0, 0, int32_t(p));
  for (size_t i = 0; i < step_graph.nodes.size(); ++i) {
    const std::vector<TensorId>& outputs = step_graph.nodes[i].outputs;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k] == kNoTensor) continue;
      const Tensor& t = step_graph.at(step_graph.storage(outputs[k]));
      if (t.region != Region::G) continue;
      require(t.parameter >= 0 && size_t(t.parameter) < moments.size(),
              "gradient '{}' belongs to no parameter", t.name);
      moments[size_t(t.parameter)] = {false, i, k, t.parameter};
    }
  }
  std::sort(moments.begin(), moments.end());
  std::vector<int32_t> order;
  for (const Moment& m : moments) order.push_back(std::get<3>(m));
  return order;
}

}  // namespace ren
