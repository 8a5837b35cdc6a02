// SPDX-License-Identifier: Apache-2.0
#include "importer/import_context.h"

#include <algorithm>
#include <array>
#include <climits>

#include "engine/ops/batch_norm/batch_norm.h"

namespace ren::importer {

std::string to_text(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += fmt::format("{}{}", i ? "," : "", dims[i]);
  return text + "]";
}

ImportContext::ImportContext(std::shared_ptr<const OnnxFile> opened, const ImportOptions& given,
                             ImportedModel& result)
    : model(result), file(*opened), options(given), builder(result.graph), policy(*opened, given) {}

const OnnxValue& ImportContext::value(const std::string& name) const {
  static const OnnxValue absent;
  const auto found = values.find(name);
  return found == values.end() ? absent : found->second;
}

int ImportContext::sole_consumer(const std::string& name) const {
  if (graph_outputs.count(name)) return -1;
  const auto found = consumers.find(name);
  return found != consumers.end() && found->second.size() == 1 ? found->second[0] : -1;
}

void ImportContext::warn(std::string text) {
  auto& list = model.warnings;
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

void ImportContext::note(std::string text) {
  auto& list = model.notes;
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

std::vector<TensorId> ImportContext::node(Op op, std::vector<TensorId> inputs, AttributesPtr attributes) {
  std::vector<TensorId> outputs = emit(builder, op, node_name, std::move(inputs), std::move(attributes));
  for (const TensorId id : outputs) {
    if (id == kNoTensor) continue;
    // Sizes beyond any memory would overflow further on.
    const Shape& s = builder.graph().at(id).shape;
    if (double(s.n) * double(s.h) * double(s.w) * double(s.c) > 1e15)
      contradict("a tensor of shape {} is too large", to_text(std::array{s.n, s.c, s.h, s.w}));
  }
  return outputs;
}

// ---- known content ----

const std::vector<float>& ImportContext::file_values(int tensor) {
  auto found = loaded_.find(tensor);
  if (found == loaded_.end())
    found = loaded_.emplace(tensor, file.values(file.tensors[size_t(tensor)])).first;
  return found->second;
}

std::vector<int32_t> positions(const AxisMap& map, const std::vector<int>& sequence) {
  std::vector<int64_t> stride(map.atoms.size(), 1);
  for (size_t i = map.atoms.size(); i-- > 1;) stride[i - 1] = stride[i] * map.atoms[i];
  const int64_t count = map.extent_of(sequence);
  if (count > INT32_MAX) refuse("", "a tensor of {} elements is too large", count);
  std::vector<int32_t> result(static_cast<size_t>(count));
  std::vector<int64_t> at(sequence.size(), 0);
  int64_t position = 0;
  for (int64_t i = 0; i < count; ++i) {
    result[size_t(i)] = int32_t(position);
    for (size_t d = sequence.size(); d-- > 0;) {
      const size_t atom = size_t(sequence[d]);
      position += stride[atom];
      if (++at[d] < map.atoms[atom]) break;
      position -= stride[atom] * map.atoms[atom];
      at[d] = 0;
    }
  }
  return result;
}

namespace {

bool is_identity(const std::vector<int32_t>& order) {
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] != int32_t(i)) return false;
  return true;
}

}  // namespace

HostValue ImportContext::host(const OnnxValue& value) {
  if (value.is(Kind::host)) return *value.host;
  require(value.is(Kind::weight), "value has no known content");
  const auto& floats = file_values(value.file_tensor);
  HostValue result;
  result.element = Element::real;
  result.dims = value.dims();
  result.sources = {value.file_tensor};
  const auto order = positions(value.map, value.map.in_axis_order());
  result.reals.reserve(order.size());
  if (!floats.empty())
    for (const int32_t i : order) result.reals.push_back(double(floats[size_t(i)]));
  return result;
}

OnnxValue ImportContext::make_host(HostValue content) {
  OnnxValue value;
  value.kind = Kind::host;
  value.map = AxisMap::plain(content.dims);
  value.host = std::make_shared<const HostValue>(std::move(content));
  return value;
}

void ImportContext::refuse_weight_graph(const HostValue& value) const {
  for (const int source : value.sources) {
    const FileTensor& tensor = file.tensors[size_t(source)];
    if (policy.looks_trainable(tensor))
      refuse(
          "fold the computation before exporting (torch.nn.utils.remove_weight_norm, "
          "parametrize.remove_parametrizations), "
          "or freeze the tensor to use its value as it is",
          "a weight is computed from '{}' by other nodes; weights that are themselves computed are not "
          "trained",
          tensor.name);
  }
}

void ImportContext::note_constant(const OnnxValue& value, const std::string& reason) {
  if (value.is(Kind::weight)) constant_reasons_.emplace(value.file_tensor, reason);
  if (value.is(Kind::host))
    for (const int source : value.host->sources) constant_reasons_.emplace(source, reason);
}

// ---- parameters ----

Decision ImportContext::decide(const OnnxValue& value, WeightRole role) {
  if (!value.is(Kind::weight)) return {false, "computed while importing"};
  const FileTensor& tensor = file.tensors[size_t(value.file_tensor)];
  const std::string& name = value.copy.empty() ? tensor.name : value.copy;
  const bool norm = role == WeightRole::norm_scale || role == WeightRole::norm_bias;
  const bool bias = role == WeightRole::bias;
  bool generated_constant = false;
  if ((norm || bias) && is_generated_name(name)) {
    const float wanted = role == WeightRole::norm_scale ? 1.0f : 0.0f;
    const auto& values = file_values(value.file_tensor);
    const bool uniform = std::all_of(values.begin(), values.end(), [&](float v) { return v == wanted; });
    generated_constant = uniform && (bias || tensor.place != FileTensor::Place::initializer);
  }
  return policy.decide(name, tensor, role, generated_constant);
}

TensorId ImportContext::parameter(const OnnxValue& value, const AxisMap& map, const Groups& groups,
                                  ParameterKind kind, WeightRole role) {
  Claim claim;
  std::vector<int> sequence;
  int64_t extents[4];
  for (size_t d = 0; d < 4; ++d) {
    extents[d] = map.extent_of(groups[d]);
    sequence.insert(sequence.end(), groups[d].begin(), groups[d].end());
  }
  claim.shape = {extents[0], extents[1], extents[2], extents[3]};
  if (claim.shape.elements() != product(map.atoms))
    refuse("", "a parameter of {} elements would have to be repeated", product(map.atoms));
  if (claim.shape.elements() == 0) contradict("a tensor of shape {} has no elements", to_text(value.dims()));
  claim.source = positions(map, sequence);
  if (is_identity(claim.source)) claim.source.clear();

  Layout layout;
  layout.engine_shape = claim.shape;
  layout.source = claim.source;
  Parameter parameter;
  parameter.shape = claim.shape;
  parameter.kind = kind;
  std::vector<float> content;
  if (value.is(Kind::weight)) {
    const FileTensor& tensor = file.tensors[size_t(value.file_tensor)];
    for (const Claim& other : claims_) {
      if (other.buffer || other.file_tensor != value.file_tensor || other.copy != value.copy) continue;
      if (other.source != claim.source || !(other.shape == claim.shape))
        refuse("", "'{}' is used in two layouts at once: {} here, {} before", tensor.name,
               to_string(claim.shape), to_string(other.shape));
      return builder.graph().parameters[size_t(other.index)].value;
    }
    const Decision decision = decide(value, role);
    layout.name = layout.stored_in = tensor.name;
    layout.onnx_shape = tensor.dims;
    parameter.trainable = decision.trained;
    parameter.reason = decision.reason;
    const auto& floats = file_values(value.file_tensor);
    content.resize(floats.size());
    for (size_t i = 0; i < content.size(); ++i)
      content[i] = claim.source.empty() ? floats[i] : floats[size_t(claim.source[i])];
    claim.file_tensor = value.file_tensor;
    claim.copy = value.copy;
  } else {
    refuse_weight_graph(*value.host);
    if (!value.host->is_real()) contradict("a weight of shape {} holds whole numbers", to_text(value.dims()));
    if (value.host->depends_on_batch()) refuse("", "a constant's values depend on the batch size");
    layout.name = fmt::format("{}:constant{}", node_name, builder.graph().parameters.size());
    layout.onnx_shape = value.host->dims;
    layout.source.clear();
    parameter.trainable = false;
    parameter.reason = "computed while importing";
    content.resize(size_t(claim.shape.elements()));
    for (size_t i = 0; i < content.size(); ++i)
      content[i] = float(value.host->at(claim.source.empty() ? i : size_t(claim.source[i])));
  }
  if (!parameter.trainable) parameter.kind = ParameterKind::constant;
  parameter.lars = kind == ParameterKind::weight;
  parameter.name = layout.name;
  claim.index = int(builder.graph().parameters.size());
  const TensorId id = builder.parameter(std::move(parameter));
  model.parameters.push_back(std::move(content));
  model.parameter_layouts.push_back(std::move(layout));
  if (claim.file_tensor >= 0) claims_.push_back(std::move(claim));
  return id;
}

TensorId ImportContext::vector(const OnnxValue& value, ParameterKind kind, WeightRole role) {
  return parameter(value, value.map, Groups{{{}, {}, {}, value.map.in_axis_order()}}, kind, role);
}

TensorId ImportContext::running_statistic(const OnnxValue& value, const AxisMap& map,
                                          const std::vector<int>& order, const NodeView& node, int input,
                                          const std::string& wish) {
  Claim claim;
  claim.buffer = true;
  claim.shape = {1, 1, 1, map.extent_of(order)};
  claim.source = positions(map, order);
  if (is_identity(claim.source)) claim.source.clear();
  claim.node = node.index;
  claim.input = input;
  claim.wish = wish;
  claim.index = int(builder.graph().buffers.size());
  Layout layout;
  layout.engine_shape = claim.shape;
  layout.source = claim.source;
  layout.onnx_shape = value.dims();
  const HostValue content = host(value);
  std::vector<float> floats(size_t(claim.shape.elements()));
  if (value.is(Kind::weight)) {
    const FileTensor& tensor = file.tensors[size_t(value.file_tensor)];
    layout.name = layout.stored_in = tensor.name;
    layout.onnx_shape = tensor.dims;
    claim.file_tensor = value.file_tensor;
    claim.copy = value.copy;
    const auto& raw = file_values(value.file_tensor);
    for (size_t i = 0; i < floats.size(); ++i)
      floats[i] = claim.source.empty() ? raw[i] : raw[size_t(claim.source[i])];
  } else {
    layout.name = fmt::format("{}:statistic{}", node_name, input);
    layout.source.clear();
    for (size_t i = 0; i < floats.size(); ++i)
      floats[i] = float(content.at(claim.source.empty() ? i : size_t(claim.source[i])));
  }
  const TensorId id = builder.buffer(layout.name, claim.shape);
  model.buffers.push_back(std::move(floats));
  model.buffer_layouts.push_back(std::move(layout));
  if (claim.file_tensor >= 0) claims_.push_back(std::move(claim));
  return id;
}

// ---- storage ----

void ImportContext::settle_storage() {
  std::set<std::string> taken;
  for (const auto& tensor : file.graph().initializer()) taken.insert(tensor.name());
  for (const auto& n : file.graph().node())
    for (const auto& output : n.output()) taken.insert(output);
  for (const auto& input : file.graph().input()) taken.insert(input.name());
  std::map<int, std::vector<Claim*>> by_tensor;
  for (Claim& claim : claims_) by_tensor[claim.file_tensor].push_back(&claim);
  Graph& graph = builder.graph();
  for (auto& [tensor, claims] : by_tensor) {
    if (claims.size() == 1) continue;
    // The tensor itself stays with a direct use, a parameter before a statistic.
    const auto rank_of = [](const Claim* c) { return (c->copy.empty() ? 0 : 2) + (c->buffer ? 1 : 0); };
    const auto owner = std::min_element(claims.begin(), claims.end(), [&](const Claim* a, const Claim* b) {
      return rank_of(a) < rank_of(b);
    });
    for (const Claim* claim : claims) {
      if (claim == *owner) continue;
      Layout& layout = claim->buffer ? model.buffer_layouts[size_t(claim->index)]
                                     : model.parameter_layouts[size_t(claim->index)];
      layout.added = true;
      const auto uses = untied_uses.find({claim->file_tensor, claim->copy});
      if (!claim->copy.empty() && !claim->buffer) {
        layout.name = claim->copy;
        if (uses != untied_uses.end()) layout.rewired = uses->second;
      } else if (!claim->copy.empty() && uses == untied_uses.end()) {
        layout.name = claim->copy;
      } else {
        std::string name = claim->wish;
        for (int i = 2; name.empty() || taken.count(name); ++i) name = fmt::format("{}_{}", claim->wish, i);
        taken.insert(name);
        layout.name = name;
        layout.rewired = {{claim->node, claim->input}};
      }
      if (uses == untied_uses.end())
        note(fmt::format(
            "'{}' serves several roles in the file; '{}' is kept apart from it, and export adds it",
            file.tensors[size_t(tensor)].name, layout.name));
    }
  }
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    graph.parameters[i].name = model.parameter_layouts[i].name;
    graph.at(graph.parameters[i].value).name = graph.parameters[i].name;
  }
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    graph.buffers[i].name = model.buffer_layouts[i].name;
    graph.at(graph.buffers[i].value).name = graph.buffers[i].name;
  }
}

namespace {

template <typename T>
void reorder(std::vector<T>& items, const std::vector<size_t>& order) {
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

std::vector<size_t> file_order(const std::vector<Layout>& layouts,
                               const std::map<std::string, int>& positions) {
  std::vector<size_t> order(layouts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [&](size_t i) {
    const auto found = positions.find(layouts[i].stored_in);
    return found == positions.end() ? INT_MAX : found->second;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace

void ImportContext::sort_by_file() {
  Graph& graph = builder.graph();
  const auto parameters = file_order(model.parameter_layouts, file.tensor_by_name);
  reorder(graph.parameters, parameters);
  reorder(model.parameters, parameters);
  reorder(model.parameter_layouts, parameters);
  for (size_t i = 0; i < graph.parameters.size(); ++i)
    graph.at(graph.parameters[i].value).parameter = int32_t(i);
  const auto buffers = file_order(model.buffer_layouts, file.tensor_by_name);
  reorder(graph.buffers, buffers);
  reorder(model.buffers, buffers);
  reorder(model.buffer_layouts, buffers);
}

void ImportContext::report_tensors() {
  std::map<std::string, ParameterInfo> known;
  const Graph& graph = builder.graph();
  const auto describe = [](const Layout& layout, TensorRole role, size_t index) {
    ParameterInfo info;
    info.name = layout.name;
    info.onnx_shape = layout.onnx_shape;
    info.engine_shape = layout.engine_shape;
    info.role = role;
    info.index = int32_t(index);
    return info;
  };
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    ParameterInfo info = describe(model.buffer_layouts[i], TensorRole::buffer, i);
    info.reason = "running statistics of a normalisation";
    known.emplace(info.name, info);
  }
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& p = graph.parameters[i];
    ParameterInfo info =
        describe(model.parameter_layouts[i], p.trainable ? TensorRole::parameter : TensorRole::constant, i);
    info.trained = p.trainable;
    info.reason = p.reason;
    known.emplace(info.name, info);
  }
  std::set<std::string> done;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    done.insert(tensor.name);
    const auto found = known.find(tensor.name);
    if (found != known.end()) {
      model.tensors.push_back(found->second);
      continue;
    }
    ParameterInfo info;
    info.name = tensor.name;
    info.onnx_shape = tensor.dims;
    const auto reason = constant_reasons_.find(int(i));
    info.role = reason == constant_reasons_.end() ? TensorRole::unused : TensorRole::constant;
    info.reason = reason == constant_reasons_.end() ? "no output depends on it" : reason->second;
    model.tensors.push_back(std::move(info));
  }
  for (const auto& [name, info] : known)
    if (!done.count(name)) model.tensors.push_back(info);
}

void ImportContext::finish() {
  settle_storage();
  sort_by_file();
  report_tensors();
  policy.finish(model.tensors, model.warnings);
}

}  // namespace ren::importer
