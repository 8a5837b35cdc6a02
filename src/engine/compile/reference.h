// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace ren {

// Runs a graph in double by the ops' naive references: the oracle for passes, backends and whole
// models. Slow, one thread. Range operations work on the family tensors of the graph.
class ReferenceRun {
 public:
  explicit ReferenceRun(const Graph& graph);

  std::vector<double>& value(TensorId id);                        // NHWC; a view shares its storage's
  std::vector<double>& family(int32_t parameter, Region region);  // W, G, M, E
  void run();                                                     // one execution of all nodes
  void run_node(const Node& node);

 private:
  void run_range(const Node& node);
  void sgd(const Node& node);
  double scalar(Scalar s) { return value(graph_.scalar(s))[0]; }

  const Graph& graph_;
  std::vector<std::vector<double>> values_;              // by tensor (storage roots)
  std::vector<std::vector<double>> moments_, averages_;  // by parameter, for graphs without such tensors
};

}  // namespace ren
