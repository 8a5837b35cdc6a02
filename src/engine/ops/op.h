// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/device/device.h"
#include "engine/ir/builder.h"
#include "engine/ir/choices.h"
#include "engine/ir/graph.h"

namespace ren {

// ---- The meaning of an op: the same for every backend ------------------------------------

// What the reference of a range op works on: one parameter's slot in a family, in double.
class ReferenceRegions {
 public:
  virtual ~ReferenceRegions() = default;
  virtual std::vector<double>* slot(Region family, int parameter) = 0;  // nullptr: not there
};

// Values for the double-precision reference, in NHWC order without padding. Inputs that an op
// updates in place (running statistics, device scalars) are changed where they lie.
struct ReferenceCall {
  const Graph& graph;
  const Node& node;
  std::vector<const std::vector<double>*> inputs;  // nullptr: absent
  std::vector<std::vector<double>*> outputs;       // sized by the caller; nullptr: unwanted
  ReferenceRegions* regions = nullptr;             // for range ops

  const Shape& input_shape(size_t i) const { return graph.at(node.inputs[i]).shape; }
  const Shape& output_shape(size_t i) const { return graph.at(node.outputs[i]).shape; }
};

// Hands a node's output gradients to its op's `gradient`, which emits backward nodes and
// gives back one contribution for each input that wants one.
class GradientContext {
 public:
  GradientContext(GraphBuilder& builder, const Node& node) : builder_(builder), node_(node) {}
  virtual ~GradientContext() = default;

  const Node& node() const { return node_; }
  const Graph& graph() const { return builder_.graph(); }
  GraphBuilder& builder() { return builder_; }

  virtual TensorId output_gradient(size_t output) = 0;  // kNoTensor when nothing flows in
  virtual bool wants(size_t input) const = 0;
  // Has the input a value for each sample, also where the batch is one sample?
  virtual bool is_per_sample(size_t input) const {
    return node_.inputs[input] != kNoTensor && builder_.graph().at(node_.inputs[input]).shape.n > 1;
  }
  virtual void set_gradient(size_t input, TensorId contribution) = 0;

 private:
  GraphBuilder& builder_;
  const Node node_;  // a copy: emitting nodes moves the graph's own
};

struct OpDefinition {
  const char* name;
  // Output types from attributes and input types. Throws Error (unsupported, invalid_model)
  // with a text that names sizes; the caller adds the node.
  std::vector<TensorType> (*infer)(const Node& node, std::span<const TensorType> inputs);
  // Naive, double precision, as close to the formula as it can be written.
  void (*reference)(const ReferenceCall& call);
  // nullptr: not differentiable (backward and range ops).
  void (*gradient)(GradientContext& context);
};

const OpDefinition& definition_of(Op op);

// infer + append: what importers, gradients and passes use. Errors carry op and node.
std::vector<TensorId> emit(GraphBuilder& builder, Op op, std::string name, std::vector<TensorId> inputs,
                           AttributesPtr attributes);

// ---- Backends ----------------------------------------------------------------------------

// A node's memory once the plan is known. Pointers are device addresses.
struct RegionSpan {
  std::byte* base = nullptr;
  uint64_t bytes = 0;  // the region's extent, slots and their gaps included
};

struct BindContext {
  const Graph& graph;
  const Node& node;
  const NodeChoice& choice;
  Device& device;
  std::span<std::byte* const> inputs;  // nullptr: absent
  std::span<std::byte* const> outputs;
  std::byte* workspace = nullptr;            // choice.workspace_bytes
  std::span<const RegionSpan> regions;       // by Region; for range ops
  std::span<const struct Segment> segments;  // by slot; for range ops
};

// One slot of the parameter families, as range ops see it: offsets are relative to the
// region's base, and those of A are half of W's.
struct Segment {
  uint64_t offset = 0;  // in W, G, M, V, E (FP32), bytes
  uint64_t elements = 0;
  float learning_rate = 1.0f;  // multiplier
  float weight_decay = 1.0f;   // multiplier
  uint32_t flags = 0;          // SegmentFlag
};
enum SegmentFlag : uint32_t { kFrozen = 1, kLars = 2 };

struct PrepareContext {
  const Graph& graph;
  const Node& node;
  Device& device;
  bool deterministic = false;  // choices follow rules, not timings
  bool tf32 = false;           // products of FP32 may round their operands to 11 bits
};

// What a backend knows about one op. `prepare` may refuse (unsupported), measure, and says
// what workspace the node needs; `bind` makes the launch.
struct OpBackend {
  NodeChoice (*prepare)(const PrepareContext& context);
  std::unique_ptr<Kernel> (*bind)(const BindContext& context);
};

// A kind of device as the engine sees it: how to open one, and its kernels.
struct Backend {
  DeviceKind kind;
  std::unique_ptr<Device> (*open)(int index);
  const OpBackend* (*kernels)(Op op);  // nullptr: this backend has none
};

const Backend& cpu_backend();

// Which operand shapes broadcast against `full`, dimension by dimension (1 or equal).
bool broadcasts_to(const Shape& operand, const Shape& full);

}  // namespace ren
