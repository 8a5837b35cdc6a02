// SPDX-License-Identifier: Apache-2.0
// Parses an ONNX file and checks what every later step relies on.
#include <climits>
#include <filesystem>
#include <set>

#include "engine/base/file.h"
#include "importer/onnx_file.h"

namespace ren::importer {

namespace fs = std::filesystem;

namespace {

// Problems of one file, with the status of the first kind met.
class Findings {
 public:
  void add(StatusCode code, std::string where, std::string what, std::string remedy = {}) {
    if (problems_.empty()) code_ = code;
    if (code != code_) code_ = StatusCode::invalid_model;
    problems_.add(std::move(where), std::move(what), std::move(remedy));
  }
  void invalid(std::string where, std::string what, std::string remedy = {}) {
    add(StatusCode::invalid_model, std::move(where), std::move(what), std::move(remedy));
  }
  void throw_if_any(const std::string& path) const {
    problems_.throw_if_any(code_, fmt::format("'{}' is not a usable ONNX model", path));
  }

 private:
  Problems problems_;
  StatusCode code_ = StatusCode::invalid_model;
};

std::string node_label(const onnx::NodeProto& node, int index) {
  if (!node.name().empty()) return fmt::format("{} '{}'", node.op_type(), node.name());
  if (node.output_size() > 0) return fmt::format("{} giving '{}'", node.op_type(), node.output(0));
  return fmt::format("{} (node {})", node.op_type(), index);
}

void check_tensor_into(const onnx::TensorProto& tensor, const std::string& where, const std::string& folder,
                       Findings& findings) {
  try {
    const std::string wrong = check_tensor(tensor, folder);
    if (!wrong.empty()) findings.invalid(where, wrong);
  } catch (const Error& e) {
    findings.add(e.code(), where, e.what(),
                 e.code() == StatusCode::not_found ? "keep the external data files beside the model" : "");
  }
}

void check_header(const onnx::ModelProto& model, Findings& findings) {
  if (!model.has_graph()) findings.invalid("file", "holds no graph", "is it an ONNX model?");
  if (!model.has_ir_version() || model.ir_version() < 1)
    findings.invalid("file", fmt::format("ir_version is {}", model.ir_version()));
  std::set<std::string> domains;
  bool standard = false;
  for (const auto& opset : model.opset_import()) {
    const std::string domain = opset.domain() == "ai.onnx" ? "" : opset.domain();
    if (!domains.insert(domain).second)
      findings.invalid("file", fmt::format("imports the operator set of domain '{}' twice", domain));
    if (!domain.empty()) continue;
    standard = true;
    if (opset.version() < 7)
      findings.add(StatusCode::unsupported, "file",
                   fmt::format("uses operator set {}; the oldest supported one is 7", opset.version()),
                   "export again with a newer opset");
  }
  if (!standard) findings.invalid("file", "imports no version of the ONNX operator set");
  if (model.graph().sparse_initializer_size() > 0)
    findings.add(StatusCode::unsupported, "file", "has sparse initializers", "store them dense");
}

void check_initializers(const OnnxFile& file, Findings& findings) {
  std::set<std::string> names;
  for (const auto& tensor : file.graph().initializer()) {
    const std::string where = fmt::format("initializer '{}'", tensor.name());
    if (tensor.name().empty()) findings.invalid(where, "has no name");
    if (!names.insert(tensor.name()).second) findings.invalid(where, "occurs twice");
    check_tensor_into(tensor, where, file.folder, findings);
  }
}

// Every value has one producer, and nodes read only what stands before them.
void check_dataflow(const OnnxFile& file, Findings& findings) {
  const auto& graph = file.graph();
  std::set<std::string> defined;
  std::map<std::string, int> producer;
  std::set<std::string> inputs;
  for (const auto& input : graph.input()) {
    if (input.name().empty()) findings.invalid("graph input", "has no name");
    if (!inputs.insert(input.name()).second)
      findings.invalid(fmt::format("graph input '{}'", input.name()), "occurs twice");
    defined.insert(input.name());
  }
  for (const auto& tensor : graph.initializer()) defined.insert(tensor.name());
  for (int i = 0; i < graph.node_size(); ++i)
    for (const auto& name : graph.node(i).output()) {
      if (name.empty()) continue;
      if (defined.count(name) || !producer.emplace(name, i).second)
        findings.invalid(node_label(graph.node(i), i), fmt::format("gives '{}', which exists already", name));
    }
  bool unsorted = false;
  std::vector<int> waiting;  // nodes that read something produced later
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const auto& name : graph.node(i).input()) {
      if (name.empty() || defined.count(name)) continue;
      const auto found = producer.find(name);
      if (found == producer.end()) {
        findings.invalid(node_label(graph.node(i), i),
                         fmt::format("reads '{}', which is no input, initializer or output of a node", name));
      } else if (found->second >= i) {
        unsorted = true;
        waiting.push_back(i);
      }
    }
  }
  if (unsorted) {
    // What never gets ready lies on a cycle or behind one.
    const size_t count = size_t(graph.node_size());
    std::vector<bool> done(count, false);
    std::vector<int> missing(count, 0), ready;
    std::vector<std::vector<int>> readers(count);
    for (size_t i = 0; i < count; ++i) {
      for (const auto& name : graph.node(int(i)).input()) {
        const auto found = producer.find(name);
        if (name.empty() || found == producer.end()) continue;
        readers[size_t(found->second)].push_back(int(i));
        ++missing[i];
      }
      if (missing[i] == 0) ready.push_back(int(i));
    }
    while (!ready.empty()) {
      const int i = ready.back();
      ready.pop_back();
      done[size_t(i)] = true;
      for (const int reader : readers[size_t(i)])
        if (--missing[size_t(reader)] == 0) ready.push_back(reader);
    }
    for (const int i : waiting) {
      const char* what = done[size_t(i)]
                             ? "reads a value that a later node gives: the nodes are not sorted"
                             : "reads a value that depends on its own output: the graph has a cycle";
      findings.invalid(node_label(graph.node(i), i), what);
    }
  }
  for (const auto& output : graph.output())
    if (!defined.count(output.name()) && !producer.count(output.name()))
      findings.invalid(fmt::format("graph output '{}'", output.name()), "is given by no node");
  if (graph.output_size() == 0) findings.invalid("graph", "has no outputs");
}

void collect_tensors(OnnxFile& file, Findings& findings) {
  const auto& graph = file.graph();
  const auto add = [&](FileTensor tensor) {
    file.tensor_by_name.emplace(tensor.name, int(file.tensors.size()));
    file.tensors.push_back(std::move(tensor));
  };
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const auto& tensor = graph.initializer(i);
    if (is_real_type(tensor.data_type()))
      add({FileTensor::Place::initializer,
           i,
           tensor.name(),
           {tensor.dims().begin(), tensor.dims().end()},
           tensor.data_type()});
  }
  for (int i = 0; i < graph.node_size(); ++i) {
    const auto& node = graph.node(i);
    if (node.op_type() != "Constant" || !(node.domain().empty() || node.domain() == "ai.onnx")) continue;
    if (node.output_size() != 1 || node.attribute_size() != 1) {
      findings.invalid(node_label(node, i), "needs exactly one output and one attribute");
      continue;
    }
    const auto& attribute = node.attribute(0);
    const int kFloat = onnx::TensorProto::FLOAT;
    if (attribute.name() == "value") {
      check_tensor_into(attribute.t(), node_label(node, i), file.folder, findings);
      if (is_real_type(attribute.t().data_type()))
        add({FileTensor::Place::constant_tensor,
             i,
             node.output(0),
             {attribute.t().dims().begin(), attribute.t().dims().end()},
             attribute.t().data_type()});
    } else if (attribute.name() == "value_float") {
      add({FileTensor::Place::constant_float, i, node.output(0), {}, kFloat});
    } else if (attribute.name() == "value_floats") {
      add({FileTensor::Place::constant_floats, i, node.output(0), {attribute.floats_size()}, kFloat});
    }
  }
}

void hold_external(OnnxFile& file, Findings& findings) {
  for (onnx::TensorProto* tensor : external_tensors(file.model)) {
    try {
      file.external_files.insert(external_data(*tensor, file.folder).path);
      tensor->set_raw_data(read_external(*tensor, file.folder));
    } catch (const Error& e) {
      findings.add(e.code(), fmt::format("tensor '{}'", tensor->name()), e.what());
    }
  }
}

void parse(OnnxFile& file) {
  std::error_code error;
  if (!fs::exists(file.path, error)) fail(StatusCode::not_found, "'{}' does not exist", file.path);
  // read_file() refuses what is no regular file
  const uint64_t size = fs::is_regular_file(file.path, error) ? uint64_t(fs::file_size(file.path, error)) : 0;
  if (size > uint64_t(INT_MAX))
    fail(StatusCode::invalid_model,
         "'{}' has {} bytes; an ONNX file holds at most 2 GB: save the model with external data", file.path,
         size);
  const std::string content = read_file(file.path);
  if (content.empty()) fail(StatusCode::invalid_model, "'{}' is empty", file.path);
  if (!file.model.ParseFromArray(content.data(), int(content.size())))
    fail(StatusCode::invalid_model, "'{}' is no ONNX file, or it is damaged or cut off", file.path);
  for (onnx::TensorProto* tensor : external_tensors(file.model)) tensor->clear_raw_data();
}

// External data lies beside the model; where that is a link, beside the link or beside what it leads to.
fs::path data_folder(const std::string& path, onnx::ModelProto& model) {
  std::error_code error;
  const fs::path folder = fs::absolute(path).parent_path();
  const auto tensors = external_tensors(model);
  if (tensors.empty() || !fs::is_symlink(fs::symlink_status(path, error))) return folder;
  for (const auto& entry : tensors[0]->external_data())
    if (entry.key() == "location" && fs::exists(folder / entry.value(), error)) return folder;
  return fs::path(final_target(path)).parent_path();
}

}  // namespace

std::shared_ptr<OnnxFile> read_onnx(const std::string& path) {
  auto file = std::make_shared<OnnxFile>();
  file->path = path;
  parse(*file);
  std::error_code error;
  const fs::path parent = data_folder(path, file->model);
  file->folder = fs::canonical(parent, error).string();
  if (error) fail(StatusCode::io, "cannot resolve the folder of '{}': {}", path, error.message());
  Findings findings;
  check_header(file->model, findings);
  findings.throw_if_any(path);
  check_initializers(*file, findings);
  check_dataflow(*file, findings);
  collect_tensors(*file, findings);
  findings.throw_if_any(path);
  hold_external(*file, findings);
  findings.throw_if_any(path);
  return file;
}

std::vector<float> OnnxFile::values(const FileTensor& tensor) const {
  const auto& nodes = graph().node();
  switch (tensor.place) {
    case FileTensor::Place::initializer:
      return decode_floats(graph().initializer(tensor.index), folder);
    case FileTensor::Place::constant_tensor:
      return decode_floats(nodes.Get(tensor.index).attribute(0).t(), folder);
    case FileTensor::Place::constant_float:
      return {nodes.Get(tensor.index).attribute(0).f()};
    case FileTensor::Place::constant_floats: {
      const auto& floats = nodes.Get(tensor.index).attribute(0).floats();
      return {floats.begin(), floats.end()};
    }
  }
  return {};
}

}  // namespace ren::importer
