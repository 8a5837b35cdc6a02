// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ops/op.h"
#include "engine/pointwise/expression.h"
#include "importer/axis_map.h"
#include "importer/host_value.h"
#include "importer/importer.h"
#include "importer/onnx_file.h"
#include "importer/training_policy.h"

namespace ren::importer {

// What an op importer throws when a node cannot be taken. The driver adds node, op and opset.
struct Refusal {
  StatusCode code;
  std::string what, remedy;
};

template <typename... Args>
[[noreturn]] void refuse(std::string remedy, fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{StatusCode::unsupported, fmt::format(format, std::forward<Args>(args)...), std::move(remedy)};
}
template <typename... Args>
[[noreturn]] void contradict(fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{StatusCode::invalid_model, fmt::format(format, std::forward<Args>(args)...), {}};
}

std::string to_text(std::span<const int64_t> dims);  // "[1,3,32,32]"

// Random numbers from 0 to 1, or 0 and `factor` once they were compared with `below`.
struct Noise {
  uint32_t stream = 0;
  double below = -1, factor = 1;
};

// An ONNX value while importing.
struct OnnxValue {
  enum class Kind : uint8_t {
    absent,   // an optional input that is not there
    unknown,  // given by a node that was refused; nodes that read it are passed over
    host,     // known content
    weight,   // a floating-point tensor of the file, its axes perhaps moved
    tensor,   // computed by the graph
    noise,    // random numbers on their way into stochastic depth
    sequence
  };
  Kind kind = Kind::absent;
  std::shared_ptr<const HostValue> host;
  int file_tensor = -1;          // weight
  std::string copy;              // weight: the output of the Identity that made it a copy
  TensorId id = kNoTensor;       // tensor
  bool boolean = false;          // tensor: 0 or 1, ONNX type bool
  AxisMap map;                   // weight, tensor, and host and noise (plain)
  std::vector<OnnxValue> items;  // sequence
  std::shared_ptr<const Noise> noise;

  bool is(Kind k) const { return kind == k; }
  bool known() const { return kind == Kind::host || kind == Kind::weight; }
  int rank() const { return map.rank(); }
  Dims dims() const { return map.dims(); }
};
using Kind = OnnxValue::Kind;

// Atoms for N, H, W and C, in memory order.
using Groups = std::array<std::vector<int>, 4>;

class ImportContext;

// One node as its importer sees it.
class NodeView {
 public:
  NodeView(ImportContext& context, const onnx::NodeProto& proto, int index);

  ImportContext& context;
  const onnx::NodeProto& proto;
  const int index;
  const std::string name;  // for messages and for graph nodes
  const int64_t opset;

  int inputs() const { return proto.input_size(); }
  int outputs() const { return proto.output_size(); }
  bool has(int input) const { return input < inputs() && !proto.input(input).empty(); }
  bool wants(int output) const;          // is there, and somebody reads it
  const OnnxValue& in(int input) const;  // absent when it is not there
  // Checks the kind and says which input is at fault.
  const OnnxValue& tensor_in(int input) const;
  const OnnxValue& required(int input) const;
  HostValue host_in(int input) const;             // known content
  std::vector<int64_t> ints_in(int input) const;  // integers that don't depend on the batch
  double scalar_in(int input) const;

  const onnx::AttributeProto* attribute(const char* name) const;
  bool has_attribute(const char* name) const { return attribute(name) != nullptr; }
  int64_t integer(const char* name, int64_t fallback) const;
  double real(const char* name, double fallback) const;
  std::string text(const char* name, const std::string& fallback) const;
  std::vector<int64_t> integers(const char* name, std::vector<int64_t> fallback = {}) const;

  void give(int output, OnnxValue value) const;
  int axis(int64_t axis, int rank) const;  // negative ones count from the end
};

// What one file tensor is used for: a claim on its storage.
struct Claim {
  int file_tensor = -1;
  std::string copy;  // by way of this Identity output
  bool buffer = false;
  int index = -1;  // in Graph::parameters or Graph::buffers
  std::vector<int32_t> source;
  Shape shape;
  int node = -1, input = -1;  // of a buffer: where it enters
  std::string wish;           // of a buffer: its name when the tensor's own is taken
};

class ImportContext {
 public:
  ImportContext(std::shared_ptr<const OnnxFile> file, const ImportOptions& options, ImportedModel& model);

  ImportedModel& model;
  const OnnxFile& file;
  const ImportOptions& options;
  GraphBuilder builder;
  TrainingPolicy policy;
  int64_t opset = 0;
  int64_t batch = 0;          // the extent that stands for it
  bool norms_marked = false;  // some BatchNormalization is marked for training
  std::string node_name;      // of the node being imported
  int random_streams = 0;     // drawn so far
  int norms = 0, training_norms = 0, folded_convs = 0;
  std::map<std::string, std::pair<TensorId, TensorId>> shared_statistics;  // of a module used twice
  std::set<int> consumed;  // nodes that an earlier node took along

  std::unordered_map<std::string, OnnxValue> values;
  std::unordered_map<std::string, std::vector<int>> consumers;  // node indices
  std::set<std::string> graph_outputs;

  // Parameters that the exporter merged with others of equal value, by (node, input).
  std::map<std::pair<int, int>, OnnxValue> untied;
  std::map<std::pair<int, std::string>, std::vector<std::pair<int, int>>> untied_uses;
  void untie_merged();

  const OnnxValue& value(const std::string& name) const;
  // The one node that reads a value which is no graph output; -1 otherwise.
  int sole_consumer(const std::string& name) const;

  // ---- known content ----
  HostValue host(const OnnxValue& value);
  static OnnxValue make_host(HostValue value);
  const std::vector<float>& file_values(int file_tensor);

  // ---- layout ----
  OnnxValue make_tensor(TensorId id, AxisMap map, bool boolean = false) const;
  OnnxValue image(TensorId id, const Assignment& assignment) const;
  // The value with its atoms in this order and these dimensions: the tensor itself, a view, or a copy.
  OnnxValue arrange(const OnnxValue& value, const Groups& groups);
  OnnxValue arrange(const OnnxValue& value, const Assignment& assignment);
  Groups groups_of(const AxisMap& map, const Assignment& assignment) const;
  bool is_view(const AxisMap& map, const Assignment& assignment) const;
  // Channels first, or last where that spares a copy.
  Assignment natural_assignment(const OnnxValue& value) const;
  // These atoms as C, the others as N, H and W in their order.
  Groups with_tail(const OnnxValue& value, std::vector<int> tail) const;
  // A copy in the order of the axes: its map is one atom an axis.
  OnnxValue copy_to_axis_order(const OnnxValue& value);

  // ---- parameters ----
  // `map` is the value's map, perhaps with finer atoms; groups are over its atoms.
  TensorId parameter(const OnnxValue& value, const AxisMap& map, const Groups& groups, ParameterKind kind,
                     WeightRole role);
  TensorId vector(const OnnxValue& value, ParameterKind kind, WeightRole role);  // [1,1,1,C] from one axis
  TensorId running_statistic(const OnnxValue& value, const AxisMap& map, const std::vector<int>& order,
                             const NodeView& node, int input, const std::string& wish);
  Decision decide(const OnnxValue& value, WeightRole role);
  void note_constant(const OnnxValue& value, const std::string& reason);
  // Refuses content that is computed from tensors which should be trained.
  void refuse_weight_graph(const HostValue& value) const;

  // ---- nodes ----
  std::vector<TensorId> node(Op op, std::vector<TensorId> inputs, AttributesPtr attributes);
  using Build = std::function<ren::Value(ExpressionBuilder&, std::span<const ren::Value>)>;
  struct PointwiseOptions {
    bool boolean = false;
    WeightRole role = WeightRole::constant_operand;
    ParameterKind kind = ParameterKind::constant;
    int64_t repeated_input = -1;
    bool training_only = false;
  };
  OnnxValue pointwise(const std::vector<OnnxValue>& operands, const Build& build, PointwiseOptions options);
  OnnxValue pointwise(const std::vector<OnnxValue>& operands, const Build& build) {
    return pointwise(operands, build, PointwiseOptions());
  }

  void warn(std::string text);
  void note(std::string text);
  // Names, order and storage of parameters and buffers once all nodes are done.
  void finish();

 private:
  TensorId view(TensorId id, const Shape& shape);
  TensorId permute(TensorId id, const AxisMap& map, const std::vector<int>& sequence, const Shape& shape);
  void settle_storage();
  void sort_by_file();
  void report_tensors();

  std::map<std::string, TensorId> layouts_;  // arranged copies, by text key
  std::map<int, std::vector<float>> loaded_;
  std::vector<Claim> claims_;
  std::map<int, std::string> constant_reasons_;
};

// For each element in the order of `sequence`, where it lies in the memory that `map` describes.
std::vector<int32_t> positions(const AxisMap& map, const std::vector<int>& sequence);

// Atoms of `map`'s axis in the memory order that x's axis has; refines `map` as needed.
std::vector<int> ordered_like(const AxisMap& x, int x_axis, AxisMap& map, int axis);

}  // namespace ren::importer
