// SPDX-License-Identifier: Apache-2.0
#include "capi/model.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

namespace ren::capi {

using importer::ImportedModel;
using importer::Layout;
using importer::ParameterInfo;
using importer::TensorRole;

std::vector<Place> Model::places(bool with_file) const {
  std::vector<Place> all;
  if (with_file) all.push_back({path, "the model's file"});
  for (const std::string& file : imported.external_files)
    all.push_back({file, "a file of the model's external data"});
  return all;
}

std::vector<float> to_file(const Layout& layout, std::span<const float> engine) {
  if (layout.source.empty()) return {engine.begin(), engine.end()};
  int64_t count = 1;
  for (const int64_t d : layout.onnx_shape) count *= d;
  std::vector<float> file(size_t(count), 0.0f);
  for (size_t i = 0; i < layout.source.size(); ++i)
    if (layout.source[i] >= 0) file[size_t(layout.source[i])] = engine[i];
  return file;
}

std::vector<float> from_file(const Layout& layout, std::span<const float> file) {
  if (layout.source.empty()) return {file.begin(), file.end()};
  std::vector<float> engine(layout.source.size(), 0.0f);
  for (size_t i = 0; i < engine.size(); ++i)
    if (layout.source[i] >= 0) engine[i] = file[size_t(layout.source[i])];
  return engine;
}

int32_t find_layout(const std::vector<Layout>& layouts, const std::string& name) {
  for (size_t i = 0; i < layouts.size(); ++i)
    if (layouts[i].name == name) return int32_t(i);
  return -1;
}

void no_such_tensor(const Model& model, const std::string& name, const char* kind) {
  for (const ParameterInfo& t : model.imported.tensors)
    if (t.name == name)
      fail(StatusCode::invalid_argument, "tensor '{}' is a {} here, not a {}", name,
           importer::name_of(t.role), kind);
  fail(StatusCode::not_found, "the model has no {} '{}'", kind, name);
}

ModelState state_for_trainer(const Model& model) {
  const std::shared_lock lock(model.values);
  return {model.imported.graph, model.imported.parameters, model.imported.buffers};
}

importer::ExportOptions export_options(const ren_export_options& options) {
  check_flag(options.inference_form, "inference_form");
  check_flag(options.use_ema, "use_ema");
  if (options.metadata_count % 2 != 0)
    fail(StatusCode::invalid_argument, "metadata_count is {}: it counts keys and values, so it is even",
         options.metadata_count);
  importer::ExportOptions out;
  out.inference_form = options.inference_form != 0;
  if (options.metadata_count > 0) not_null(options.metadata, "metadata");
  for (size_t i = 0; i < options.metadata_count; i += 2)
    out.metadata[text_of(options.metadata[i], "a metadata key")] =
        not_null(options.metadata[i + 1], "a metadata value");
  return out;
}

void give_notes(ren_report** out, const std::vector<std::string>& notes) {
  if (out == nullptr) return;
  Report report;
  for (const std::string& note : notes) report.text += note + "\n";
  report.json = json_text(notes);
  give_report(out, std::move(report));
}

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// As the file has it, the batch by name.
std::string value_text(const ImportedModel& m, const std::vector<int64_t>& shape) {
  return fmt::format("[{},{}]", m.dynamic_batch ? std::string("N") : std::to_string(m.static_batch),
                     fmt::join(shape.begin() + 1, shape.end(), ","));
}

nlohmann::json value_json(const std::string& name, const std::vector<int64_t>& shape) {
  nlohmann::json extents = shape;
  extents[0] = nullptr;
  return {{"name", name}, {"shape", extents}};
}

int64_t elements_of(const ParameterInfo& t) {
  int64_t n = 1;
  for (const int64_t d : t.onnx_shape) n *= d;
  return n;
}

int64_t trained_elements(const ImportedModel& m) {
  int64_t n = 0;
  for (const ParameterInfo& t : m.tensors) n += t.trained ? elements_of(t) : 0;
  return n;
}

std::map<std::string, int64_t> op_counts(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) ++counts[name_of(node.op)];
  return counts;
}

nlohmann::json inspect_json(const Model& model) {
  const ImportedModel& m = model.imported;
  nlohmann::json j;
  j["event"] = "inspect";
  j["model"] = model.path;
  j["producer"] = m.producer;
  j["opset"] = m.opset;
  j["ir_version"] = m.ir_version;
  j["batch"] = m.dynamic_batch ? nlohmann::json("dynamic") : nlohmann::json(m.static_batch);
  j["inputs"] = nlohmann::json::array({value_json(m.input.name, m.input.onnx_shape)});
  j["outputs"] = nlohmann::json::array();
  for (size_t i = 0; i < m.graph.outputs.size(); ++i)
    j["outputs"].push_back(value_json(m.graph.outputs[i].name, m.output_shapes[i]));
  j["ops"] = op_counts(m.graph);
  j["trained_elements"] = trained_elements(m);
  j["tensors"] = nlohmann::json::array();
  for (const ParameterInfo& t : m.tensors)
    j["tensors"].push_back({{"name", t.name},
                            {"shape", t.onnx_shape},
                            {"role", importer::name_of(t.role)},
                            {"trained", t.trained},
                            {"reason", t.reason}});
  j["notes"] = m.notes;
  j["warnings"] = m.warnings;
  j["metadata"] = m.metadata;
  return j;
}

std::string tensor_table(const ImportedModel& m) {
  size_t names = 4, shapes = 5;
  for (const ParameterInfo& t : m.tensors) {
    names = std::max(names, t.name.size());
    shapes = std::max(shapes, shape_text(t.onnx_shape).size());
  }
  std::string text = fmt::format("  {:<{}}  {:<{}}  {:<9}  {:<7}  {}\n", "name", names, "shape", shapes,
                                 "role", "trained", "why");
  for (const ParameterInfo& t : m.tensors)
    text += fmt::format("  {:<{}}  {:<{}}  {:<9}  {:<7}  {}\n", t.name, names, shape_text(t.onnx_shape),
                        shapes, importer::name_of(t.role), t.trained ? "yes" : "no", t.reason);
  return text;
}

std::string inspect_text(const Model& model) {
  const ImportedModel& m = model.imported;
  std::string text = fmt::format("{}: opset {}, IR version {}{}\n", model.path, m.opset, m.ir_version,
                                 m.producer.empty() ? "" : ", by " + m.producer);
  text += fmt::format("input    {} {}\n", m.input.name, value_text(m, m.input.onnx_shape));
  for (size_t i = 0; i < m.graph.outputs.size(); ++i)
    text += fmt::format("output   {} {}\n", m.graph.outputs[i].name, value_text(m, m.output_shapes[i]));
  std::vector<std::string> ops;
  for (const auto& [name, count] : op_counts(m.graph)) ops.push_back(fmt::format("{} {}", count, name));
  text += fmt::format("graph    {} nodes: {}\n", m.graph.nodes.size(), fmt::join(ops, ", "));
  const auto trained =
      std::count_if(m.tensors.begin(), m.tensors.end(), [](const ParameterInfo& t) { return t.trained; });
  text +=
      fmt::format("trained  {} values in {} of {} tensors\n", trained_elements(m), trained, m.tensors.size());
  for (const auto& [key, value] : m.metadata)
    text += fmt::format("metadata {} = {}\n", key, value.size() > 100 ? value.substr(0, 97) + "..." : value);
  text += "\n" + tensor_table(m);
  for (const std::string& note : m.notes) text += "note: " + note + "\n";
  for (const std::string& warning : m.warnings) text += "warning: " + warning + "\n";
  return text;
}

}  // namespace

Report inspect(const Model& model) { return {inspect_text(model), json_text(inspect_json(model)), {}, true}; }

}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_model_load(const char* path, const ren_model_options* given, ren_model** out) {
  return guard([&] {
    const std::string file = text_of(path, "path");
    const ren_model_options options = read_options(given, "ren_model_options");
    not_null(out, "model");
    importer::ImportOptions import;
    import.train = texts_of(options.train, options.train_count, "train");
    import.freeze = texts_of(options.freeze, options.freeze_count, "freeze");
    import.train_norms = texts_of(options.train_norms, options.train_norm_count, "train_norms");
    import.freeze_norms = texts_of(options.freeze_norms, options.freeze_norm_count, "freeze_norms");
    auto model = std::make_shared<Model>();
    model->path = file;
    model->imported = importer::import_model(file, import);
    give_handle(out, std::move(model));
  });
}

void ren_model_destroy(ren_model* model) { destroy_handle(model); }

int32_t ren_model_get_info(const ren_model* model, ren_model_info* out) {
  return guard([&] {
    const auto& m = state_of(model, "model")->imported;
    check_result(out, "info");
    ren_model_info info{};
    info.dynamic_batch = m.dynamic_batch ? 1 : 0;
    info.static_batch = m.dynamic_batch ? 0 : m.static_batch;
    info.channels = m.input.channels;
    info.height = m.input.height;
    info.width = m.input.width;
    info.opset = m.opset;
    info.ir_version = m.ir_version;
    info.outputs = int64_t(m.graph.outputs.size());
    info.tensors = int64_t(m.tensors.size());
    info.notes = int64_t(m.notes.size());
    info.warnings = int64_t(m.warnings.size());
    info.trained_elements = trained_elements(m);
    info.nodes = int64_t(m.graph.nodes.size());
    info.external_files = int64_t(m.external_files.size());
    give_result(out, info);
  });
}

int32_t ren_model_input_name(const ren_model* model, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { give_text(state_of(model, "model")->imported.input.name, buffer, capacity, needed); });
}

int32_t ren_model_producer(const ren_model* model, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { give_text(state_of(model, "model")->imported.producer, buffer, capacity, needed); });
}

int32_t ren_model_output_info(const ren_model* model, int64_t index, ren_output_info* out) {
  return guard([&] {
    const auto& m = state_of(model, "model")->imported;
    check_index(index, m.graph.outputs.size(), "output");
    check_result(out, "info");
    const Shape s = m.graph.at(m.graph.outputs[size_t(index)].value).shape;
    ren_output_info info{};
    info.channels = s.c;
    info.height = s.h;
    info.width = s.w;
    give_result(out, info);
  });
}

int32_t ren_model_output_name(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                              size_t* needed) {
  return guard([&] {
    const auto& outputs = state_of(model, "model")->imported.graph.outputs;
    check_index(index, outputs.size(), "output");
    give_text(outputs[size_t(index)].name, buffer, capacity, needed);
  });
}

int32_t ren_model_tensor_info(const ren_model* model, int64_t index, ren_tensor_info* out) {
  return guard([&] {
    const auto& tensors = state_of(model, "model")->imported.tensors;
    check_index(index, tensors.size(), "tensor");
    check_result(out, "info");
    const importer::ParameterInfo& t = tensors[size_t(index)];
    ren_tensor_info info{};
    info.role = t.role == TensorRole::parameter  ? REN_ROLE_PARAMETER
                : t.role == TensorRole::buffer   ? REN_ROLE_BUFFER
                : t.role == TensorRole::constant ? REN_ROLE_CONSTANT
                                                 : REN_ROLE_UNUSED;
    info.trained = t.trained ? 1 : 0;
    info.elements = elements_of(t);
    if (t.onnx_shape.size() > REN_MAX_RANK)
      fail(StatusCode::unsupported, "tensor '{}' has {} dimensions", t.name, t.onnx_shape.size());
    info.rank = int32_t(t.onnx_shape.size());
    std::copy(t.onnx_shape.begin(), t.onnx_shape.end(), info.shape);
    give_result(out, info);
  });
}

int32_t ren_model_tensor_name(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                              size_t* needed) {
  return guard([&] {
    const auto& tensors = state_of(model, "model")->imported.tensors;
    check_index(index, tensors.size(), "tensor");
    give_text(tensors[size_t(index)].name, buffer, capacity, needed);
  });
}

int32_t ren_model_tensor_reason(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                size_t* needed) {
  return guard([&] {
    const auto& tensors = state_of(model, "model")->imported.tensors;
    check_index(index, tensors.size(), "tensor");
    give_text(tensors[size_t(index)].reason, buffer, capacity, needed);
  });
}

int32_t ren_model_tensor_find(const ren_model* model, const char* name, int64_t* index) {
  return guard([&] {
    const auto& tensors = state_of(model, "model")->imported.tensors;
    const std::string wanted = text_of(name, "name");
    not_null(index, "index");
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != wanted) continue;
      *index = int64_t(i);
      return;
    }
    fail(StatusCode::not_found, "the model has no tensor '{}'", wanted);
  });
}

int32_t ren_model_note(const ren_model* model, int64_t index, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] {
    const auto& notes = state_of(model, "model")->imported.notes;
    check_index(index, notes.size(), "note");
    give_text(notes[size_t(index)], buffer, capacity, needed);
  });
}

int32_t ren_model_warning(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                          size_t* needed) {
  return guard([&] {
    const auto& warnings = state_of(model, "model")->imported.warnings;
    check_index(index, warnings.size(), "warning");
    give_text(warnings[size_t(index)], buffer, capacity, needed);
  });
}

int32_t ren_model_external_file(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                size_t* needed) {
  return guard([&] {
    const auto& files = state_of(model, "model")->imported.external_files;
    check_index(index, files.size(), "external file");
    give_text(files[size_t(index)], buffer, capacity, needed);
  });
}

int32_t ren_model_metadata(const ren_model* model, const char* key, char* buffer, size_t capacity,
                           size_t* needed) {
  return guard([&] {
    const auto& metadata = state_of(model, "model")->imported.metadata;
    const auto found = metadata.find(text_of(key, "key"));
    if (found == metadata.end()) fail(StatusCode::not_found, "the model has no metadata '{}'", key);
    give_text(found->second, buffer, capacity, needed);
  });
}

int32_t ren_model_tensor_get(const ren_model* model, const char* name, float* values, size_t capacity,
                             size_t* needed) {
  return guard([&] {
    const Model& m = *state_of(model, "model");
    const std::string wanted = text_of(name, "name");
    const ImportedModel& i = m.imported;
    const std::shared_lock lock(m.values);
    std::vector<float> file;
    if (const int32_t p = find_layout(i.parameter_layouts, wanted); p >= 0) {
      file = to_file(i.parameter_layouts[size_t(p)], i.parameters[size_t(p)]);
    } else if (const int32_t b = find_layout(i.buffer_layouts, wanted); b >= 0) {
      file = to_file(i.buffer_layouts[size_t(b)], i.buffers[size_t(b)]);
    } else {
      no_such_tensor(m, wanted, "parameter or statistic");
    }
    give_floats(file.data(), file.size(), values, capacity, needed);
  });
}

int32_t ren_model_tensor_set(ren_model* model, const char* name, const float* values, size_t count) {
  return guard([&] {
    Model& m = *state_of(model, "model");
    const std::string wanted = text_of(name, "name");
    not_null(values, "values");
    ImportedModel& i = m.imported;
    const std::unique_lock lock(m.values);
    const int32_t p = find_layout(i.parameter_layouts, wanted), b = find_layout(i.buffer_layouts, wanted);
    if (p < 0 && b < 0) no_such_tensor(m, wanted, "parameter or statistic");
    const Layout& layout = p >= 0 ? i.parameter_layouts[size_t(p)] : i.buffer_layouts[size_t(b)];
    std::vector<float>& target = p >= 0 ? i.parameters[size_t(p)] : i.buffers[size_t(b)];
    const size_t expected = to_file(layout, target).size();
    if (count != expected)
      fail(StatusCode::invalid_argument, "tensor '{}' takes {} values, not {}", wanted, expected, count);
    target = from_file(layout, {values, count});
  });
}

int32_t ren_model_export(const ren_model* model, const char* path, const ren_export_options* given,
                         ren_report** notes) {
  return guard([&] {
    const Model& m = *state_of(model, "model");
    const std::string file = text_of(path, "path");
    const ren_export_options options = read_options(given, "ren_export_options");
    const importer::ExportOptions chosen = export_options(options);
    if (options.use_ema != 0)
      fail(StatusCode::invalid_argument, "use_ema: only a trainer keeps averaged weights");
    const std::shared_lock lock(m.values);
    const auto said =
        importer::export_model(m.imported, m.imported.parameters, m.imported.buffers, file, chosen);
    give_notes(notes, said);
  });
}

int32_t ren_model_report(const ren_model* model, ren_report** report) {
  return guard([&] {
    const Model& m = *state_of(model, "model");
    not_null(report, "report");
    give_report(report, inspect(m));
  });
}

}  // extern "C"
