// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace ren {

// Appends to a graph. Shapes and types of outputs come from the caller, which has asked the
// op's `infer` (engine/ops/op.h offers the checked form, `emit`).
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph, Phase phase = Phase::forward) : graph_(graph), phase_(phase) {}

  Graph& graph() { return graph_; }
  void set_phase(Phase phase) { phase_ = phase; }

  TensorId tensor(std::string name, TensorType type, Region region = Region::F);
  TensorId parameter(Parameter parameter);         // also makes its tensor in W
  TensorId buffer(std::string name, Shape shape);  // a running statistic in B
  // The tensor in W, E, A, G, M or V of one parameter; made when first asked for.
  TensorId family_tensor(int parameter, Region family, DType dtype = DType::f32);
  void add_scalars();  // fills Graph::scalars
  // Appends a node whose output types are given; returns the new tensors.
  std::vector<TensorId> node(Op op, std::string name, std::vector<TensorId> inputs,
                             const std::vector<TensorType>& outputs, AttributesPtr attributes);

 private:
  Graph& graph_;
  Phase phase_;
};

}  // namespace ren
