// SPDX-License-Identifier: Apache-2.0
// Writes new values into the original file, whose structure and unknown fields stay.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "engine/base/checksum.h"
#include "engine/base/file.h"
#include "importer/metadata.h"
#include "importer/onnx_file.h"

namespace ren::importer {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLongestStem = 200;  // leaves room for ".HASH.data" in a name of 255 bytes

bool is_standard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class Exporter {
 public:
  Exporter(const ImportedModel& model, const std::string& path)
      : model_(model), file_(*model.file), path_(path), proto_(model.file->model) {
    const fs::path target(final_target(path_));
    folder_ = target.parent_path().string();
    data_stem_ = target.filename().string();
    if (data_stem_.size() <= kLongestStem) return;
    Fnv64 hash;  // no name would be left for the data
    hash.add(data_stem_);
    data_stem_ = fmt::format("weights-{}", hash.hex());
  }

  std::vector<std::string> run(std::span<const std::vector<float>> parameters,
                               std::span<const std::vector<float>> buffers, const ExportOptions& options) {
    refuse_external_target();
    for (const auto& [key, value] : options.metadata) check_metadata(key, value);
    check_counts(parameters, model_.parameter_layouts, "parameters");
    check_counts(buffers, model_.buffer_layouts, "running statistics");
    for (size_t i = 0; i < parameters.size(); ++i)
      store(model_.parameter_layouts[i], model_.to_onnx(int(i), parameters[i]));
    for (size_t i = 0; i < buffers.size(); ++i)
      store(model_.buffer_layouts[i], model_.buffer_to_onnx(int(i), buffers[i]));
    if (options.inference_form) to_inference_form();
    for (const auto& [key, value] : options.metadata) set_metadata(key, value);
    remove_nodes();
    const std::set<std::string> former = data_of_target();
    write();
    tell_of_former_data(former);
    return std::move(notes_);
  }

 private:
  void check_counts(std::span<const std::vector<float>> values, const std::vector<Layout>& layouts,
                    const char* what) {
    if (values.size() != layouts.size())
      fail(StatusCode::invalid_argument, "the model has {} {}, {} given", layouts.size(), what,
           values.size());
  }

  void refuse_external_target() const {
    for (const std::string& file : file_.external_files)
      if (same_file(file, path_))
        fail(StatusCode::invalid_argument,
             "'{}' holds the external data of the model '{}': name another file to write", path_, file_.path);
  }

  void set_metadata(const std::string& key, const std::string& value) {
    for (auto& entry : *proto_.mutable_metadata_props()) {
      if (entry.key() != key) continue;
      entry.set_value(value);
      return;
    }
    auto& entry = *proto_.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }

  // ---- values ----

  void store(const Layout& layout, std::vector<float> values) {
    if (layout.stored_in.empty()) return;
    const FileTensor& tensor = file_.tensors[size_t(file_.tensor_by_name.at(layout.stored_in))];
    const bool overflows = tensor.type == onnx::TensorProto::FLOAT16 &&
                           std::any_of(values.begin(), values.end(),
                                       [](float v) { return std::fabs(v) > 65504 && std::isfinite(v); });
    if (overflows)
      notes_.push_back(fmt::format("'{}' has values that are infinite in the file's float16", layout.name));
    expected_[layout.name] = {tensor.type, values};
    if (layout.added) return add(layout, tensor, values);
    if (same_bits(values, file_.values(tensor))) return;
    auto& graph = *proto_.mutable_graph();
    switch (tensor.place) {
      case FileTensor::Place::initializer:
        return encode(*graph.mutable_initializer(tensor.index), values);
      case FileTensor::Place::constant_tensor:
        return encode(*graph.mutable_node(tensor.index)->mutable_attribute(0)->mutable_t(), values);
      case FileTensor::Place::constant_float:
        graph.mutable_node(tensor.index)->mutable_attribute(0)->set_f(values[0]);
        return;
      case FileTensor::Place::constant_floats: {
        auto& attribute = *graph.mutable_node(tensor.index)->mutable_attribute(0);
        for (int i = 0; i < attribute.floats_size(); ++i) attribute.set_floats(i, values[size_t(i)]);
        return;
      }
    }
  }

  void encode(onnx::TensorProto& tensor, const std::vector<float>& values) {
    if (is_external(tensor)) {
      replaced_[&tensor] = encode_raw(tensor.data_type(), values);
    } else {
      encode_floats(tensor, values);
    }
  }

  // A tensor that served two roles: one of them gets its own.
  void add(const Layout& layout, const FileTensor& original, const std::vector<float>& values) {
    auto& graph = *proto_.mutable_graph();
    onnx::TensorProto tensor;
    tensor.set_name(layout.name);
    for (const int64_t d : layout.onnx_shape) tensor.add_dims(d);
    tensor.set_data_type(original.type);
    tensor.set_raw_data(encode_raw(original.type, values));
    new_initializers_.push_back(std::move(tensor));
    for (const auto& [node, input] : layout.rewired) graph.mutable_node(node)->set_input(input, layout.name);
    if (layout.rewired.empty()) {
      for (int i = 0; i < graph.node_size(); ++i)
        if (graph.node(i).output_size() == 1 && graph.node(i).output(0) == layout.name) removed_.insert(i);
    }
    // Below IR version 4 every initializer must be listed among the inputs.
    if (proto_.ir_version() < 4) {
      auto& input = *graph.add_input();
      input.set_name(layout.name);
      auto& type = *input.mutable_type()->mutable_tensor_type();
      type.set_elem_type(original.type);
      for (const int64_t d : layout.onnx_shape) type.mutable_shape()->add_dim()->set_dim_value(d);
    }
    notes_.push_back(fmt::format("initializer '{}' was added: '{}' served another role as well", layout.name,
                                 layout.stored_in));
  }

  // ---- structure ----

  std::map<std::string, int> readers() const {
    std::map<std::string, int> count;
    for (int i = 0; i < proto_.graph().node_size(); ++i)
      if (!removed_.count(i))
        for (const auto& input : proto_.graph().node(i).input()) ++count[input];
    for (const auto& output : proto_.graph().output()) ++count[output.name()];
    return count;
  }

  void to_inference_form() {
    auto& graph = *proto_.mutable_graph();
    std::set<std::string> outputs;
    for (const auto& output : graph.output()) outputs.insert(output.name());
    std::map<std::string, std::string> renamed;
    std::set<std::string> maybe_unused;
    int norms = 0, dropouts = 0;
    for (int i = 0; i < graph.node_size(); ++i) {
      auto& node = *graph.mutable_node(i);
      for (auto& input : *node.mutable_input()) {
        const auto found = renamed.find(input);
        if (found != renamed.end()) input = found->second;
      }
      if (!is_standard(node.domain())) continue;
      if (node.op_type() == "BatchNormalization") {
        norms += node.output_size() > 1;
        while (node.output_size() > 1) {
          gone_.insert(node.output(node.output_size() - 1));
          node.mutable_output()->RemoveLast();
        }
        for (auto& attribute : *node.mutable_attribute())
          if (attribute.name() == "training_mode") attribute.set_i(0);
      } else if (node.op_type() == "Dropout") {
        ++dropouts;
        for (int k = 1; k < node.input_size(); ++k) maybe_unused.insert(node.input(k));
        for (int k = 1; k < node.output_size(); ++k) gone_.insert(node.output(k));
        if (outputs.count(node.output(0))) {
          node.set_op_type("Identity");
          node.clear_attribute();
          while (node.input_size() > 1) node.mutable_input()->RemoveLast();
          while (node.output_size() > 1) node.mutable_output()->RemoveLast();
        } else {
          renamed[node.output(0)] = node.input(0);
          gone_.insert(node.output(0));
          removed_.insert(i);
        }
      }
    }
    const auto count = readers();
    for (int i = 0; i < graph.node_size(); ++i)
      if (graph.node(i).op_type() == "Constant" && graph.node(i).output_size() == 1 &&
          maybe_unused.count(graph.node(i).output(0)) && !count.count(graph.node(i).output(0))) {
        gone_.insert(graph.node(i).output(0));
        removed_.insert(i);
      }
    if (norms > 0 || dropouts > 0)
      notes_.push_back(
          fmt::format("inference form: {} normalisations without training outputs, {} Dropout nodes removed",
                      norms, dropouts));
  }

  // External tensors are remembered by address, so these are moved out before nodes move.
  void remove_nodes() {
    store_external();
    auto& graph = *proto_.mutable_graph();
    for (auto& tensor : new_initializers_) *graph.add_initializer() = std::move(tensor);
    if (!removed_.empty()) {
      int kept = 0;
      for (int i = 0; i < graph.node_size(); ++i) {
        if (removed_.count(i)) continue;
        if (i != kept) graph.mutable_node()->SwapElements(i, kept);
        ++kept;
      }
      graph.mutable_node()->DeleteSubrange(kept, graph.node_size() - kept);
    }
    if (gone_.empty()) return;
    auto& infos = *graph.mutable_value_info();
    int kept = 0;
    for (int i = 0; i < infos.size(); ++i) {
      if (gone_.count(infos.Get(i).name())) continue;
      if (i != kept) infos.SwapElements(i, kept);
      ++kept;
    }
    infos.DeleteSubrange(kept, infos.size() - kept);
  }

  // ---- external data ----

  static void set_entry(onnx::TensorProto& tensor, const std::string& key, const std::string& value) {
    for (auto& entry : *tensor.mutable_external_data())
      if (entry.key() == key) {
        entry.set_value(value);
        return;
      }
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }

  struct Piece {  // of the data file
    size_t padding = 0;
    const std::string* content = nullptr;
  };

  // The data goes into a file that is named after its content: the model's file, replaced last, then never
  // refers to data of another export, whenever the process is killed.
  void store_external() {
    const auto tensors = external_tensors(proto_);
    if (tensors.empty()) return;
    std::vector<const std::string*> contents;
    Fnv64 hash;
    for (const auto* tensor : tensors) {
      const auto replaced = replaced_.find(tensor);
      contents.push_back(replaced != replaced_.end() ? &replaced->second : &tensor->raw_data());
      hash.add_bytes(*contents.back());
      hash.add_bytes(fmt::format("/{}", contents.back()->size()));
    }
    const std::string name = fmt::format("{}.{}.data", data_stem_, hash.hex());
    data_path_ = (fs::path(folder_) / name).string();
    std::vector<Piece> pieces;
    uint64_t offset = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      pieces.push_back({size_t((64 - offset % 64) % 64), contents[i]});
      offset += pieces.back().padding;
      set_entry(*tensors[i], "location", name);
      set_entry(*tensors[i], "offset", std::to_string(offset));
      set_entry(*tensors[i], "length", std::to_string(contents[i]->size()));
      auto& entries = *tensors[i]->mutable_external_data();
      for (int k = entries.size(); k-- > 0;)
        if (entries.Get(k).key() == "checksum") entries.DeleteSubrange(k, 1);
      offset += contents[i]->size();
    }
    if (!data_is_there(pieces)) {
      data_ = std::make_unique<AtomicFile>(data_path_);
      for (const Piece& piece : pieces) {
        data_->write(std::string(piece.padding, '\0'));
        data_->write(*piece.content);
      }
    }
    for (auto* tensor : tensors) tensor->clear_raw_data();
  }

  // A file of that name and content is what this export would write: another writer's, or an earlier one's.
  // Only when it differs (something damaged it) it is written again.
  bool data_is_there(std::span<const Piece> pieces) const {
    std::error_code error;
    uint64_t size = 0;
    for (const Piece& piece : pieces) size += piece.padding + piece.content->size();
    if (!fs::is_regular_file(data_path_, error) || fs::file_size(data_path_, error) != size || error)
      return false;
    std::ifstream file(data_path_, std::ios::binary);
    std::string found;
    for (const Piece& piece : pieces) {
      found.resize(piece.padding + piece.content->size());
      if (!file.read(found.data(), std::streamsize(found.size()))) return false;
      const std::string_view all = found;
      if (all.substr(0, piece.padding).find_first_not_of('\0') != std::string_view::npos ||
          all.substr(piece.padding) != *piece.content)
        return false;
    }
    return true;
  }

  // The data files that the model in the target's place refers to. What is no model refers to none.
  std::set<std::string> data_of_target() const {
    std::set<std::string> names;
    std::error_code error;
    if (!fs::is_regular_file(path_, error)) return names;
    try {
      onnx::ModelProto former;
      if (!former.ParseFromString(read_file(path_))) return names;
      for (const auto* tensor : external_tensors(former))
        for (const auto& entry : tensor->external_data())
          if (entry.key() == "location") names.insert(fs::path(entry.value()).lexically_normal().string());
    } catch (const Error&) {  // not readable, but perhaps replaceable
    }
    return names;
  }

  // Nobody can know whether another model, a copy or a hard link of the former one, say, needs a data file,
  // or whether another process is about to: none is ever removed.
  void tell_of_former_data(const std::set<std::string>& former) {
    for (const std::string& name : former) {
      const std::string path = (fs::path(folder_) / name).string();
      std::error_code error;
      if (path == data_path_ || !fs::is_regular_file(path, error)) continue;
      notes_.push_back(fmt::format(
          "'{}' is no longer referred to by '{}'; delete it if nothing else needs it", path, path_));
    }
  }

  // ---- writing ----

  void write() {
    if (proto_.ByteSizeLong() > size_t(INT_MAX))
      fail(StatusCode::unsupported,
           "the model has more than 2 GB, which an ONNX file without external data cannot hold");
    std::string content;
    if (!proto_.SerializeToString(&content)) fail(StatusCode::internal, "cannot serialise the model");
    AtomicFile out(path_);
    out.write(content);
    if (data_) data_->commit();
    check(out.temporary());
    out.commit();
  }

  // What was written must be readable and hold the values, in the file's precision. This is looked at before
  // it takes its place, where another process might replace it at once.
  void check(const std::string& place) const {
    const auto written = read_onnx(place);
    for (const auto& [name, expected] : expected_) {
      const auto found = written->tensor_by_name.find(name);
      require(found != written->tensor_by_name.end(), "'{}' lacks '{}' after export", path_, name);
      const auto& [type, values] = expected;
      onnx::TensorProto rounded;
      rounded.set_data_type(type);
      rounded.add_dims(int64_t(values.size()));
      rounded.set_raw_data(encode_raw(type, values));
      if (!same_bits(written->values(written->tensors[size_t(found->second)]), decode_floats(rounded, {})))
        fail(StatusCode::io, "'{}' read back from '{}' differs from what was written", name, path_);
    }
  }

  struct Expected {
    int type = 0;
    std::vector<float> values;
  };

  const ImportedModel& model_;
  const OnnxFile& file_;
  const std::string path_;
  std::string folder_, data_stem_, data_path_;  // of the file that `path_` leads to
  onnx::ModelProto proto_;
  std::map<const onnx::TensorProto*, std::string> replaced_;  // new content of external tensors
  std::vector<onnx::TensorProto> new_initializers_;
  std::set<int> removed_;       // nodes
  std::set<std::string> gone_;  // values
  std::map<std::string, Expected> expected_;
  std::unique_ptr<AtomicFile> data_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> export_model(const ImportedModel& model,
                                      std::span<const std::vector<float>> parameters,
                                      std::span<const std::vector<float>> buffers, const std::string& path,
                                      const ExportOptions& options) {
  if (!model.file) fail(StatusCode::invalid_argument, "the model does not come from a file");
  return Exporter(model, path).run(parameters, buffers, options);
}

}  // namespace ren::importer
