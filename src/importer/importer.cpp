// SPDX-License-Identifier: Apache-2.0
#include "importer/importer.h"

#include <algorithm>
#include <stdexcept>

#include "importer/import_context.h"
#include "importer/message_text.h"
#include "importer/metadata.h"
#include "importer/operators.h"

namespace ren::importer {

const char* name_of(TensorRole role) {
  switch (role) {
    case TensorRole::parameter:
      return "parameter";
    case TensorRole::buffer:
      return "buffer";
    case TensorRole::constant:
      return "constant";
    case TensorRole::unused:
      return "unused";
  }
  return "?";
}

namespace {

void check_count(const Layout& layout, size_t given) {
  if (given != size_t(layout.engine_shape.elements()))
    fail(StatusCode::invalid_argument, "'{}' has {} elements, {} given", layout.name,
         layout.engine_shape.elements(), given);
}

std::vector<float> to_file(const Layout& layout, std::span<const float> engine) {
  check_count(layout, engine.size());
  std::vector<float> result(engine.size());
  for (size_t i = 0; i < engine.size(); ++i)
    result[layout.source.empty() ? i : size_t(layout.source[i])] = engine[i];
  return result;
}

std::vector<float> from_file(const Layout& layout, std::span<const float> onnx) {
  check_count(layout, onnx.size());
  std::vector<float> result(onnx.size());
  for (size_t i = 0; i < onnx.size(); ++i)
    result[i] = onnx[layout.source.empty() ? i : size_t(layout.source[i])];
  return result;
}

}  // namespace

std::vector<float> ImportedModel::to_onnx(int parameter, std::span<const float> engine) const {
  return to_file(parameter_layouts.at(size_t(parameter)), engine);
}

std::vector<float> ImportedModel::from_onnx(int parameter, std::span<const float> onnx) const {
  return from_file(parameter_layouts.at(size_t(parameter)), onnx);
}

std::vector<float> ImportedModel::buffer_to_onnx(int buffer, std::span<const float> engine) const {
  return to_file(buffer_layouts.at(size_t(buffer)), engine);
}

std::vector<float> ImportedModel::buffer_from_onnx(int buffer, std::span<const float> onnx) const {
  return from_file(buffer_layouts.at(size_t(buffer)), onnx);
}

const std::vector<int64_t>& ImportedModel::onnx_shape(int parameter) const {
  return parameter_layouts.at(size_t(parameter)).onnx_shape;
}

namespace {

bool is_standard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

constexpr const char* kUnsupported = "the operator is not supported";
constexpr const char* kSeeOperators = "see docs/operators.md for what is";

class Driver {
 public:
  Driver(std::shared_ptr<OnnxFile> file, const ImportOptions& options)
      : file_(std::move(file)), context_(file_, options, model_) {}

  ImportedModel run() {
    read_header();
    index_nodes();
    enter_tensors();
    enter_input();
    throw_if_any();
    context_.untie_merged();
    for (int i = 0; i < file_->graph().node_size(); ++i)
      if (live_[size_t(i)]) import_node(i);
    collect_outputs();
    throw_if_any();
    context_.finish();
    remark();
    model_.file = file_;
    model_.external_files.assign(file_->external_files.begin(), file_->external_files.end());
    return std::move(model_);
  }

 private:
  // channels_last: the text comes from the engine, whose shapes are NHWC
  void problem(StatusCode code, std::string where, const std::string& what, std::string remedy,
               bool channels_last = false) {
    if (problems_.empty()) code_ = code;
    if (code == StatusCode::invalid_model) code_ = code;
    const int64_t stand_in = model_.dynamic_batch ? context_.batch : 0;
    problems_.add(std::move(where), onnx_shapes(what, stand_in, channels_last), std::move(remedy));
  }

  void throw_if_any() const {
    problems_.throw_if_any(code_, fmt::format("'{}' cannot be imported", file_->path));
  }

  void read_header() {
    const auto& proto = file_->model;
    for (const auto& opset : proto.opset_import())
      if (is_standard(opset.domain())) context_.opset = opset.version();
    model_.opset = context_.opset;
    model_.ir_version = proto.ir_version();
    model_.producer =
        proto.producer_name() + (proto.producer_version().empty() ? "" : " " + proto.producer_version());
    for (const auto& entry : proto.metadata_props()) {
      model_.metadata[entry.key()] = entry.value();
      if (entry.key() == kBatchNormKey) norms_as_marked_ = batch_norm_as_marked(entry.value());
    }
    model_.graph.name = proto.graph().name();
    if (model_.opset > kNewestOpset)
      context_.warn(fmt::format("the file uses operator set {}, newer than {} which this program knows",
                                model_.opset, kNewestOpset));
    if (model_.ir_version > kNewestIr)
      context_.warn(fmt::format("the file has IR version {}, newer than {} which this program knows",
                                model_.ir_version, kNewestIr));
  }

  void index_nodes() {
    const auto& graph = file_->graph();
    for (const auto& output : graph.output()) context_.graph_outputs.insert(output.name());
    std::map<std::string, int> producer;
    for (int i = 0; i < graph.node_size(); ++i)
      for (const auto& output : graph.node(i).output())
        if (!output.empty()) producer[output] = i;
    live_.assign(size_t(graph.node_size()), false);
    std::vector<int> stack;
    const auto visit = [&](const std::string& name) {
      const auto found = producer.find(name);
      if (found == producer.end() || live_[size_t(found->second)]) return;
      live_[size_t(found->second)] = true;
      stack.push_back(found->second);
    };
    for (const auto& output : graph.output()) visit(output.name());
    while (!stack.empty()) {
      const int i = stack.back();
      stack.pop_back();
      for (const auto& input : graph.node(i).input()) visit(input);
    }
    int dead = 0;
    for (int i = 0; i < graph.node_size(); ++i) {
      const auto& node = graph.node(i);
      if (!live_[size_t(i)]) {
        ++dead;
        continue;
      }
      for (const auto& input : node.input())
        if (!input.empty()) context_.consumers[input].push_back(i);
      if (node.op_type() != "BatchNormalization" || !is_standard(node.domain())) continue;
      const auto* mode = NodeView(context_, node, i).attribute("training_mode");
      const bool marked = context_.opset >= 14 ? mode && mode->i() != 0 : node.output_size() > 1;
      any_norm_marked_ = any_norm_marked_ || marked;
    }
    context_.norms_marked = any_norm_marked_ || norms_as_marked_;
    if (dead > 0) context_.note(fmt::format("{} nodes lead to no output and are left out", dead));
  }

  void enter_tensors() {
    const auto& graph = file_->graph();
    for (size_t i = 0; i < file_->tensors.size(); ++i) {
      const FileTensor& tensor = file_->tensors[i];
      OnnxValue value;
      if (product(tensor.dims) == 0) {
        HostValue empty;
        empty.element = Element::real;
        empty.dims = tensor.dims;
        empty.sources = {int(i)};
        value = ImportContext::make_host(std::move(empty));
      } else {
        value.kind = Kind::weight;
        value.file_tensor = int(i);
        value.map = AxisMap::plain(tensor.dims);
      }
      context_.values[tensor.name] = std::move(value);
    }
    for (const auto& tensor : graph.initializer()) {
      if (is_real_type(tensor.data_type())) continue;
      if (!is_integer_type(tensor.data_type())) {
        strange_[tensor.name()] = tensor.data_type();
        continue;
      }
      HostValue value;
      value.element = tensor.data_type() == onnx::TensorProto::BOOL ? Element::boolean : Element::integer;
      value.dims = {tensor.dims().begin(), tensor.dims().end()};
      value.ints = decode_integers(tensor, file_->folder);
      context_.values[tensor.name()] = ImportContext::make_host(std::move(value));
    }
  }

  // True when every reader turns channels-last images to channels-first.
  bool comes_channels_last(const std::string& name) const {
    const auto readers = context_.consumers.find(name);
    if (readers == context_.consumers.end() || readers->second.empty()) return false;
    for (const int i : readers->second) {
      const auto& node = file_->graph().node(i);
      if (node.op_type() != "Transpose" || node.attribute_size() != 1) return false;
      const auto& perm = node.attribute(0).ints();
      if (std::vector<int64_t>(perm.begin(), perm.end()) != std::vector<int64_t>{0, 3, 1, 2}) return false;
    }
    return true;
  }

  void enter_input() {
    std::vector<const onnx::ValueInfoProto*> inputs;
    for (const auto& input : file_->graph().input()) {
      if (context_.values.count(input.name()) || strange_.count(input.name()))
        continue;  // has an initializer
      inputs.push_back(&input);
    }
    if (inputs.size() != 1) {
      std::string names;
      for (const auto* input : inputs)
        names += fmt::format("{}'{}'", names.empty() ? "" : ", ", input->name());
      const bool none = inputs.empty();
      return problem(
          StatusCode::unsupported, "graph inputs",
          none ? "the model has no input" : "inputs without a value: " + names + "; exactly one is supported",
          none ? "" : "if some are weights, export them as initializers");
    }
    const auto& input = *inputs[0];
    const std::string where = fmt::format("graph input '{}'", input.name());
    const auto& type = input.type().tensor_type();
    if (!input.type().has_tensor_type() || !type.has_shape())
      return problem(StatusCode::unsupported, where, "is no tensor of known rank",
                     "export with a concrete example input");
    if (!is_real_type(type.elem_type()))
      return problem(StatusCode::unsupported, where, fmt::format("is {}", type_name(type.elem_type())),
                     "images are floating-point numbers here");
    const int rank = type.shape().dim_size();
    if (rank < 2 || rank > 4)
      return problem(StatusCode::unsupported, where, fmt::format("has rank {}", rank),
                     "2 to 4 axes, the batch first, are supported");
    int64_t extents[4] = {1, 1, 1, 1};
    const Assignment assignment =
        rank == 4 && comes_channels_last(input.name()) ? channels_last(4) : channels_first(rank);
    for (int a = 0; a < rank; ++a) {
      const auto& dim = type.shape().dim(a);
      int64_t extent = dim.has_dim_value() ? dim.dim_value() : -1;
      if (a == 0) {
        model_.dynamic_batch = !dim.has_dim_value() || extent == -1;
        if (model_.dynamic_batch) extent = placeholder();
        model_.static_batch = model_.dynamic_batch ? 0 : extent;
      }
      if (extent < 1 || extent > (1 << 24))
        return problem(StatusCode::unsupported, where,
                       dim.has_dim_value()
                           ? fmt::format("axis {} has extent {}", a, extent)
                           : fmt::format("axis {} ('{}') has no fixed extent", a, dim.dim_param()),
                       "only the batch may be dynamic");
      extents[assignment[size_t(a)]] = extent;
    }
    const Shape shape{extents[0], extents[1], extents[2], extents[3]};
    if (shape.h * shape.w > (int64_t{1} << 31) / shape.c)
      return problem(StatusCode::unsupported, where, fmt::format("has shape {}", to_string(shape)),
                     "that is too large", true);
    context_.batch = shape.n;
    const TensorId id = context_.builder.tensor(input.name(), {shape, DType::f32});
    model_.graph.input = id;
    model_.input = {input.name(), shape.c, shape.h, shape.w, assignment == channels_last(4), {}};
    for (int a = 0; a < rank; ++a) model_.input.onnx_shape.push_back(extents[assignment[size_t(a)]]);
    context_.values[input.name()] = context_.image(id, assignment);
  }

  // Stands for a dynamic batch: a prime that divides no extent of the file.
  int64_t placeholder() const {
    static constexpr int64_t kPrimes[] = {1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061};
    for (const int64_t prime : kPrimes) {
      bool free = true;
      for (const auto& tensor : file_->graph().initializer())
        for (const int64_t d : tensor.dims()) free = free && d % prime != 0;
      if (free) return prime;
    }
    return 7919;
  }

  void import_node(int index) {
    const auto& proto = file_->graph().node(index);
    if (context_.consumed.count(index)) return;
    const NodeView node(context_, proto, index);
    if (proto.op_type() == "Constant" && file_->tensor_by_name.count(proto.output(0))) return;
    context_.node_name = node.name;
    bool unknown = false;
    for (const auto& input : proto.input()) {
      unknown = unknown || context_.value(input).is(Kind::unknown);
      if (strange_.count(input)) {
        report(node, StatusCode::unsupported,
               fmt::format("reads '{}' of type {}", input, type_name(strange_.at(input))),
               "quantised models are not trained; export the floating-point model");
        unknown = true;
      }
    }
    // An operator that isn't supported at all is worth saying even behind another problem.
    if (unknown && is_standard(proto.domain()) && !find_operator(proto.op_type()))
      report(node, StatusCode::unsupported, kUnsupported, kSeeOperators);
    if (!unknown) {
      try {
        import_known(node);
        return;
      } catch (const Refusal& refusal) {
        report(node, refusal.code, refusal.what, refusal.remedy);
      } catch (const Error& error) {
        report(node, error.code(), error.what(), "", true);
      } catch (const std::logic_error&) {  // a vector that is shorter than the operator needs
        report(node, StatusCode::invalid_model, "has inputs or attributes of a wrong kind or length", "");
      }
    }
    OnnxValue nothing;
    nothing.kind = Kind::unknown;
    for (const auto& output : proto.output())
      if (!output.empty()) context_.values[output] = nothing;
  }

  void import_known(const NodeView& node) {
    const auto& proto = node.proto;
    if (!is_standard(proto.domain())) {
      const bool local = std::any_of(
          file_->model.functions().begin(), file_->model.functions().end(),
          [&](const auto& f) { return f.domain() == proto.domain() && f.name() == proto.op_type(); });
      if (local)
        refuse("inline it with onnx.inliner.inline_local_functions", "is a function of the file, domain '{}'",
               proto.domain());
      refuse(proto.domain() == "com.microsoft"
                 ? "the model is optimised for inference; export it without graph optimisation"
                 : "export with standard operators",
             "is an operator of domain '{}'", proto.domain());
    }
    const OperatorInfo* info = find_operator(proto.op_type());
    if (!info) refuse(kSeeOperators, "{}", kUnsupported);
    if (proto.output_size() < 1) contradict("has no outputs");
    if (evaluate_known(node)) return;
    for (int i = 0; i < node.inputs(); ++i)
      if (node.in(i).is(Kind::noise)) return import_with_noise(node);
    if (proto.op_type() != "Constant" && node.inputs() > 0 && !node.in(0).is(Kind::tensor) &&
        all_known(node) && info->import != import_shape && info->import != import_dropout &&
        info->import != import_bernoulli && info->import != import_random_uniform_like) {
      for (int i = 0; i < node.inputs(); ++i)
        if (node.has(i)) context_.refuse_weight_graph(context_.host(node.in(i)));
      if (info->import != import_batch_normalization)
        refuse("", "computes with constants alone, in a way that is not supported");
    }
    info->import(node);
    for (int i = 0; i < node.outputs(); ++i)
      if (node.wants(i) && !context_.values.count(proto.output(i)) && !is_consumed(proto.output(i)))
        refuse("", "output {} is used", i);
  }

  bool all_known(const NodeView& node) const {
    for (int i = 0; i < node.inputs(); ++i)
      if (node.has(i) && !node.in(i).known()) return false;
    return true;
  }

  // Read only by nodes that went along with this one.
  bool is_consumed(const std::string& value) const {
    const auto readers = context_.consumers.find(value);
    return readers != context_.consumers.end() &&
           std::all_of(readers->second.begin(), readers->second.end(),
                       [&](int i) { return context_.consumed.count(i) != 0; });
  }

  void report(const NodeView& node, StatusCode code, const std::string& what, std::string remedy,
              bool channels_last = false) {
    problem(code, fmt::format("{} '{}' (opset {})", node.proto.op_type(), node.name, node.opset), what,
            std::move(remedy), channels_last);
  }

  void collect_outputs() {
    std::vector<std::string> dropped;
    for (const auto& output : file_->graph().output()) {
      const OnnxValue& value = context_.value(output.name());
      if (value.is(Kind::unknown)) continue;
      if (!value.is(Kind::tensor)) {
        dropped.push_back(output.name());
        continue;
      }
      const std::string where = fmt::format("graph output '{}'", output.name());
      context_.node_name = output.name();
      try {
        if (value.rank() < 2 || value.rank() > 4 || value.map.batch_axis() != 0)
          refuse("outputs have the batch first and 2 to 4 axes", "has shape {}", to_text(value.dims()));
        const OnnxValue logits = context_.arrange(value, channels_first(value.rank()));
        model_.graph.outputs.push_back({output.name(), logits.id});
        model_.output_shapes.push_back(value.dims());
      } catch (const Refusal& refusal) {
        problem(refusal.code, where, refusal.what, refusal.remedy);
      } catch (const Error& error) {
        problem(error.code(), where, error.what(), "", true);
      }
    }
    for (const auto& name : dropped)
      context_.warn(fmt::format("output '{}' doesn't depend on the model's input and is left out", name));
    if (model_.graph.outputs.empty() && problems_.empty())
      problem(StatusCode::invalid_model, "graph outputs", "no output depends on the model's input", "");
  }

  // A file in inference form: what its normalisations do in training is a choice that has to be told.
  void remark_unmarked_norms() {
    if (context_.training_norms == 0)
      context_.warn(fmt::format(
          "all {} BatchNormalization nodes are in inference form: they are frozen, normalise by their running "
          "statistics, and these don't move",
          context_.norms));
    else
      context_.warn(fmt::format(
          "none of the {} BatchNormalization nodes is marked for training (a file in inference form): {} of "
          "them train all the same, by the batch's statistics, as in PyTorch's train()",
          context_.norms, context_.training_norms));
  }

  void remark() {
    const auto& nodes = model_.graph.nodes;
    const int left =
        int(std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.op == Op::batch_norm; }));
    const int folded = std::max(context_.folded_convs, context_.policy.normalisations_in_signature() - left);
    if (folded > 0)
      context_.warn(fmt::format(
          "BatchNormalization was folded into {} convolutions ({} normalisations are left): this looks like "
          "an inference export. It trains, but not as the original would; export again with "
          "renaissance.export(module, example, path) of bindings/python, or torch.onnx.export(..., "
          "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamo=False)",
          folded, context_.norms));
    if (context_.norms > 0 && !any_norm_marked_) remark_unmarked_norms();
    if (context_.norms > 0 && context_.training_norms > 0) {
      bool untouched = !model_.buffers.empty();
      for (const auto& buffer : model_.buffers)
        untouched = untouched && (std::all_of(buffer.begin(), buffer.end(), [](float v) { return v == 0; }) ||
                                  std::all_of(buffer.begin(), buffer.end(), [](float v) { return v == 1; }));
      if (untouched)
        context_.note(
            "all running statistics look untouched (zeros and ones): the model has not been trained yet");
    }
  }

  std::shared_ptr<OnnxFile> file_;
  ImportedModel model_;
  ImportContext context_;
  Problems problems_;
  StatusCode code_ = StatusCode::unsupported;
  std::vector<bool> live_;
  bool any_norm_marked_ = false;  // for training
  bool norms_as_marked_ = false;  // the exporting helper vouches for the marks
  std::map<std::string, int> strange_;  // initializers of types that nothing here reads
};

}  // namespace

ImportedModel import_model(const std::string& path, const ImportOptions& options) {
  try {
    Driver driver(read_onnx(path), options);
    return driver.run();
  } catch (const Refusal& refusal) {
    fail(refusal.code, "'{}' cannot be imported: {}", path, refusal.what);
  } catch (const std::bad_alloc&) {
    fail(StatusCode::out_of_memory, "not enough memory to import '{}'", path);
  }
}

}  // namespace ren::importer
