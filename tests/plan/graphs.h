// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/ir/choices.h"
#include "engine/ir/graph.h"
#include "engine/plan/memory_plan.h"

namespace ren::test {

// Makes graphs of any form, also such as no importer would.
struct GraphMaker {
  Graph graph;
  Choices choices;

  TensorId tensor(std::string name, Shape shape, Region region = Region::F, DType dtype = DType::f32) {
    Tensor t;
    t.name = std::move(name), t.shape = shape, t.dtype = dtype, t.region = region;
    graph.tensors.push_back(t);
    return TensorId(graph.tensors.size()) - 1;
  }
  TensorId alias(std::string name, TensorId of, Shape shape) {
    const TensorId id = tensor(std::move(name), shape, graph.at(of).region, graph.at(of).dtype);
    graph.at(id).alias_of = of;
    return id;
  }
  TensorId family(int32_t parameter, Region region, DType dtype = DType::f32) {
    const Parameter& p = graph.parameters[size_t(parameter)];
    const TensorId id = tensor(std::string(name_of(region)) + "(" + p.name + ")", p.shape, region, dtype);
    graph.at(id).parameter = parameter;
    return id;
  }
  TensorId parameter(std::string name, Shape shape, ParameterKind kind = ParameterKind::weight) {
    Parameter p;
    p.name = std::move(name), p.shape = shape, p.kind = kind;
    graph.parameters.push_back(p);
    const int32_t index = int32_t(graph.parameters.size()) - 1;
    return graph.parameters.back().value = family(index, Region::W);
  }
  void node(Op op, std::vector<TensorId> inputs, std::vector<TensorId> outputs, uint64_t workspace = 0,
            std::string name = {}) {
    Node n;
    n.op = op, n.inputs = std::move(inputs), n.outputs = std::move(outputs);
    n.name = name.empty() ? std::string(name_of(op)) + std::to_string(graph.nodes.size()) : std::move(name);
    graph.nodes.push_back(n);
    choices.nodes.push_back({"own", workspace, {}});
  }
  Variant variant(std::string name, Role role) const { return {std::move(name), role, &graph, &choices}; }
};

// A random program: branches, aliases, broadcast operands, in-place chains, shared weights, kept, unread
// and unused tensors, values from outside. The structure depends on (seed, role), sizes also on the batch.
GraphMaker random_graph(uint64_t seed, Role role, int64_t batch);
PlanOptions random_options(uint64_t seed, size_t parameters);

// The program of a ResNet-50 (or one several times as deep) after lowering and fusing, in FP32.
GraphMaker resnet50(int64_t batch, bool training, int times_deeper = 1);

// Runs the program on an arena in which every 256 bytes carry the name of who wrote them, and returns
// the first read that finds another name; empty when there is none.
class TagMachine {
 public:
  TagMachine(const MemoryPlan& plan, std::span<const Variant> variants, const PlanOptions& options);
  std::string run_all();  // every variant in turn, on one arena

 private:
  using Tag = uint64_t;

  std::string run(size_t v);
  void elementwise(const Node& node, std::span<const TensorId> outputs, size_t v);
  void reduce(const Node& node, size_t v);
  void write(uint64_t offset, uint64_t bytes, Tag tag);
  void check(uint64_t offset, uint64_t bytes, Tag tag, const std::string& what);
  void check_tensor(size_t v, TensorId id, const std::string& what);
  void write_tensor(size_t v, TensorId id);
  uint64_t bytes_of(size_t v, TensorId id) const;
  Tag tag_of(size_t v, TensorId id);
  void fill_persistent();
  void check_persistent();

  const MemoryPlan& plan_;
  std::span<const Variant> variants_;
  const PlanOptions& options_;
  std::vector<Tag> arena_;
  std::vector<std::pair<std::string, Tag>> persistent_;  // "W/3" -> tag
  std::string problem_;
};

}  // namespace ren::test
