// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/op_memory.h"
#include "graphs.h"

namespace ren::test {

// One tag stands for 256 bytes: what the plan aligns to.
constexpr uint64_t kUnit = 256;

TagMachine::TagMachine(const MemoryPlan& plan, std::span<const Variant> variants, const PlanOptions& options)
    : plan_(plan), variants_(variants), options_(options), arena_(plan.arena_bytes() / kUnit, 0) {}

std::string TagMachine::run_all() {
  fill_persistent();
  for (size_t v = 0; v < variants_.size() && problem_.empty(); ++v) problem_ = run(v);
  return problem_;
}

void TagMachine::write(uint64_t offset, uint64_t bytes, Tag tag) {
  for (uint64_t at = offset; at < offset + bytes; at += kUnit) {
    if (at / kUnit >= arena_.size()) {
      problem_ = fmt::format("a write beyond the arena at {}", at);
      return;
    }
    arena_[at / kUnit] = tag;
  }
}

void TagMachine::check(uint64_t offset, uint64_t bytes, Tag tag, const std::string& what) {
  for (uint64_t at = offset; at < offset + bytes && problem_.empty(); at += kUnit)
    if (at / kUnit >= arena_.size() || arena_[at / kUnit] != tag)
      problem_ = fmt::format("{} finds foreign bytes at {}", what, at);
}

uint64_t TagMachine::bytes_of(size_t v, TensorId id) const {
  const Tensor& t = variants_[v].graph->at(id);
  return uint64_t(t.shape.elements()) * size_of(t.dtype);
}

// Persistent tensors: one tag over all variants. F and T: the owner of the bytes, in this variant.
TagMachine::Tag TagMachine::tag_of(size_t v, TensorId id) {
  const Graph& graph = *variants_[v].graph;
  const TensorId owner = graph.storage(id);
  const Tensor& t = graph.at(owner);
  if (t.region == Region::F || t.region == Region::T) return (Tag(v + 1) << 32) + Tag(owner);
  const std::string key =
      fmt::format("{}/{}", name_of(t.region), t.parameter >= 0 ? std::to_string(t.parameter) : t.name);
  for (const auto& [known, tag] : persistent_)
    if (known == key) return tag;
  persistent_.emplace_back(key, (Tag(1) << 60) + persistent_.size());
  return persistent_.back().second;
}

void TagMachine::write_tensor(size_t v, TensorId id) {
  write(plan_.offset(v, id), bytes_of(v, id), tag_of(v, id));
}

void TagMachine::check_tensor(size_t v, TensorId id, const std::string& what) {
  check(plan_.offset(v, id), bytes_of(v, id), tag_of(v, id),
        what + " '" + variants_[v].graph->at(id).name + "'");
}

void TagMachine::fill_persistent() {
  for (size_t v = 0; v < variants_.size(); ++v) {
    const Graph& graph = *variants_[v].graph;
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      if (graph.tensors[i].region != Region::F && graph.tensors[i].region != Region::T)
        write_tensor(v, TensorId(i));
  }
}

void TagMachine::check_persistent() {
  for (size_t v = 0; v < variants_.size(); ++v) {
    const Graph& graph = *variants_[v].graph;
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      if (graph.tensors[i].region != Region::F && graph.tensors[i].region != Region::T)
        check_tensor(v, TensorId(i), "persistent");
  }
}

// Piece by piece, as the kernel does it: all operands of a place are read before any output of it is
// written. An operand of other extents may be read whole at any place. 256 elements are whole units
// in every type.
void TagMachine::elementwise(const Node& node, std::span<const TensorId> outputs, size_t v) {
  const Graph& graph = *variants_[v].graph;
  constexpr uint64_t kPiece = 256;
  const Shape shape = graph.at(outputs[0]).shape;
  for (uint64_t e = 0; e < uint64_t(shape.elements()) && problem_.empty(); e += kPiece) {
    const uint64_t count = std::min(kPiece, uint64_t(shape.elements()) - e);
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor) continue;
      const uint64_t size = size_of(graph.at(id).dtype);
      if (graph.at(id).shape == shape) {
        check(plan_.offset(v, id) + e * size, count * size, tag_of(v, id), node.name + " reads");
      } else {
        check_tensor(v, id, node.name + " reads");
      }
    }
    for (const TensorId id : outputs) {
      const uint64_t size = size_of(graph.at(id).dtype);
      write(plan_.offset(v, id) + e * size, count * size, tag_of(v, id));
    }
  }
}

// Results may be written before the last operand is read; what is stored in passing is elementwise.
void TagMachine::reduce(const Node& node, size_t v) {
  const Graph& graph = *variants_[v].graph;
  std::vector<TensorId> stored;
  for (const TensorId id : node.outputs) {
    if (id == kNoTensor) continue;
    if (is_16bit(graph.at(id).dtype))
      stored.push_back(id);
    else
      write_tensor(v, id);
  }
  if (!stored.empty()) return elementwise(node, stored, v);
  for (const TensorId id : node.inputs)
    if (id != kNoTensor) check_tensor(v, id, node.name + " reads");
}

std::string TagMachine::run(size_t v) {
  const Variant& variant = variants_[v];
  const Graph& graph = *variant.graph;
  constexpr Tag kWorkspace = ~Tag{0};
  std::vector<bool> written(graph.tensors.size(), false);
  const TensorId input = graph.storage(graph.input);
  if (plan_.offset(v, input) != kNone) write_tensor(v, input), written[size_t(input)] = true;
  for (size_t i = 0; i < graph.nodes.size() && problem_.empty(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op == Op::view) continue;
    const uint64_t workspace = variant.choices ? variant.choices->nodes[i].workspace_bytes : 0;
    if (workspace > 0) write(plan_.workspace(v, i), workspace, kWorkspace);
    if (node.op == Op::pointwise) {
      elementwise(node, node.outputs, v);
    } else if (node.op == Op::reduce) {
      reduce(node, v);
    } else {
      for (const TensorId id : node.outputs)
        if (id != kNoTensor) write_tensor(v, id);
      // Operands may be read until the last output is written.
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] != kNoTensor && reads_bytes(node.op, k))
          check_tensor(v, node.inputs[k], node.name + " reads");
    }
    for (const TensorId id : node.outputs)
      if (id != kNoTensor)
        check_tensor(v, id, node.name + " has written"), written[size_t(graph.storage(id))] = true;
    if (workspace > 0) check(plan_.workspace(v, i), workspace, kWorkspace, node.name + "'s workspace");
  }
  for (size_t t = 0; t < graph.tensors.size() && problem_.empty(); ++t)
    if (graph.tensors[t].keep && written[size_t(graph.storage(TensorId(t)))] &&
        plan_.offset(v, TensorId(t)) != kNone)
      check_tensor(v, TensorId(t), "kept");
  check_persistent();
  return problem_.empty() ? "" : fmt::format("variant '{}': {}", variant.name, problem_);
}

}  // namespace ren::test
