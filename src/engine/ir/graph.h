// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/shape.h"
#include "engine/ir/op.h"
#include "engine/ir/region.h"
#include "engine/ir/scalars.h"

namespace ren {

using TensorId = int32_t;
constexpr TensorId kNoTensor = -1;

struct TensorType {
  Shape shape;
  DType dtype = DType::f32;
  bool operator==(const TensorType&) const = default;
};

// A descriptor; it holds no memory. The MemoryPlan gives it its offset.
struct Tensor {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  Region region = Region::F;
  int32_t parameter = -1;         // index in Graph::parameters, for the parameter families
  TensorId alias_of = kNoTensor;  // same bytes as that tensor, seen in another shape
  bool keep = false;              // must still be readable when the program ends

  TensorType type() const { return {shape, dtype}; }
};

// What an op knows besides its inputs. Each op derives its own, next to its definition;
// immutable once in a node, so nodes may share them.
struct Attributes {
  virtual ~Attributes() = default;
  virtual std::string text() const = 0;  // stable; part of the printed graph
};
using AttributesPtr = std::shared_ptr<const Attributes>;

enum class Phase : uint8_t { forward, backward, update };

struct Node {
  Op op{};
  Phase phase = Phase::forward;
  std::string name;               // the ONNX node it comes from, for messages
  std::vector<TensorId> inputs;   // kNoTensor: an optional input that is absent
  std::vector<TensorId> outputs;  // kNoTensor: an output nobody wants
  AttributesPtr attributes;

  template <typename T>
  const T& as() const {
    return static_cast<const T&>(*attributes);
  }
};

enum class ParameterKind : uint8_t { weight, bias, norm_scale, norm_bias, scale, constant };
const char* name_of(ParameterKind kind);

// One slot of the parameter families: a trained parameter, or a constant that the model
// brings along (a frozen one). Its per-parameter training facts become a row of the
// segment table.
struct Parameter {
  std::string name;  // the ONNX initializer's
  Shape shape;       // engine layout: conv KRSC, fully connected [O,1,1,I], vectors [1,1,1,C]
  ParameterKind kind = ParameterKind::weight;
  bool trainable = true;
  std::string reason;  // why it is trained or not, for `inspect`
  float learning_rate_multiplier = 1.0f;
  float weight_decay_multiplier = 1.0f;
  bool lars = true;            // false: the plain rate (biases, norms) under LARS
  TensorId value = kNoTensor;  // in W
};

// Running statistics of a normalisation, in region B.
struct Buffer {
  std::string name;  // the ONNX initializer's
  TensorId value = kNoTensor;
};

struct GraphOutput {
  std::string name;  // the ONNX output's
  TensorId value = kNoTensor;
};

// A whole program as data: nodes in execution order. Copyable; passes take one and give one.
struct Graph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<GraphOutput> outputs;
  TensorId input = kNoTensor;     // images [N,H,W,C] as the first op reads them
  std::vector<TensorId> scalars;  // by Scalar; empty until the training passes add them

  const Tensor& at(TensorId id) const { return tensors[size_t(id)]; }
  Tensor& at(TensorId id) { return tensors[size_t(id)]; }
  TensorId scalar(Scalar s) const { return scalars[size_t(s)]; }
  // The tensor that owns the bytes: follows alias_of.
  TensorId storage(TensorId id) const {
    while (at(id).alias_of != kNoTensor) id = at(id).alias_of;
    return id;
  }
  int64_t batch() const { return at(input).shape.n; }
};

// Stable text of a graph, for `plan`, goldens and error messages.
std::string to_string(const Graph& graph);

// Throws internal when a node reads what nobody wrote, ids are out of range, an alias has
// another size, an output is written twice ... `pass` names who produced the graph.
void verify(const Graph& graph, std::string_view pass);

}  // namespace ren
