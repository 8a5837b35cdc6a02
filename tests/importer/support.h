// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/compile/compile.h"
#include "engine/compile/passes/passes.h"
#include "engine/compile/reference.h"
#include "importer/importer.h"
#include "ren_onnx.pb.h"

namespace ren::importer::testing {

namespace fs = std::filesystem;
namespace onnx = ::ren_onnx;

// A folder of this test's own, gone when it ends.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "ren-importer-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string parity_folder() {
  const char* set = std::getenv("RENAISSANCE_PARITY");
  return set && *set ? set : std::string(REN_SOURCE_DIR) + "/../shared/parity";
}

inline onnx::ModelProto parse(const std::string& path) {
  onnx::ModelProto model;
  const std::string content = read_file(path);
  if (!model.ParseFromString(content)) fail(StatusCode::io, "cannot parse '{}'", path);
  return model;
}

// The outputs in inference mode by the double-precision reference, in ONNX's NCHW order.
inline std::map<std::string, std::vector<double>> reference_outputs(const ImportedModel& model,
                                                                    const std::vector<double>& images,
                                                                    int64_t batch,
                                                                    bool channels_last = false) {
  Graph graph = with_batch(model.graph, batch);
  const TrainingSpec spec;
  VariantSpec variant;
  variant.role = Role::predict;
  variant.batch = batch;
  infer_mode(graph, PassContext{spec, variant});
  ReferenceRun run(graph);
  const auto nchw = [](const Shape& s, int64_t i) {
    const int64_t w = i % s.w, h = i / s.w % s.h, c = i / (s.w * s.h) % s.c, n = i / (s.w * s.h * s.c);
    return size_t(((n * s.h + h) * s.w + w) * s.c + c);
  };
  auto& input = run.value(graph.input);
  for (size_t i = 0; i < images.size(); ++i)
    input.at(channels_last ? i : nchw(graph.at(graph.input).shape, int64_t(i))) = images[i];
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    auto& values = run.value(graph.parameters[p].value);
    for (size_t i = 0; i < values.size(); ++i) values[i] = double(model.parameters[p].at(i));
  }
  for (size_t p = 0; p < graph.buffers.size(); ++p) {
    auto& values = run.value(graph.buffers[p].value);
    for (size_t i = 0; i < values.size(); ++i) values[i] = double(model.buffers[p].at(i));
  }
  run.run();
  std::map<std::string, std::vector<double>> result;
  for (const GraphOutput& output : graph.outputs) {
    const Shape& shape = graph.at(output.value).shape;
    const auto& values = run.value(output.value);
    auto& out = result[output.name];
    for (int64_t i = 0; i < shape.elements(); ++i) out.push_back(values[nchw(shape, i)]);
  }
  return result;
}

// The largest difference, relative to the largest reference value.
inline double worst_error(const std::vector<double>& y, const std::vector<double>& reference) {
  if (y.size() != reference.size()) return 1e30;
  double largest = 1e-30, worst = 0;
  for (const double r : reference) largest = std::max(largest, std::fabs(r));
  for (size_t i = 0; i < y.size(); ++i) {
    const double error = std::fabs(y[i] - reference[i]) / largest;
    if (!(error <= worst)) worst = error;  // NaN counts as worst
  }
  return worst;
}

// Builds small models.
class ModelMaker {
 public:
  explicit ModelMaker(int64_t opset = 17, std::vector<int64_t> input = {-1, 3, 8, 8}) {
    model.set_ir_version(8);
    model.add_opset_import()->set_version(opset);
    model.mutable_graph()->set_name("made");
    add_input("x", input);
  }
  onnx::ModelProto model;

  onnx::GraphProto& graph() { return *model.mutable_graph(); }
  void add_input(const std::string& name, const std::vector<int64_t>& dims) {
    describe(*graph().add_input(), name, dims);
  }
  void add_output(const std::string& name, const std::vector<int64_t>& dims) {
    describe(*graph().add_output(), name, dims);
  }
  onnx::TensorProto& tensor(const std::string& name, const std::vector<int64_t>& dims, float start = 0.1f,
                            float step = 0.01f) {
    auto& t = *graph().add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    int64_t count = 1;
    for (const int64_t d : dims) {
      t.add_dims(d);
      count *= d;
    }
    std::string raw;
    for (int64_t i = 0; i < count; ++i) {
      const float v = start + step * float(i);
      raw.append(reinterpret_cast<const char*>(&v), sizeof v);
    }
    t.set_raw_data(raw);
    return t;
  }
  onnx::TensorProto& integers(const std::string& name, const std::vector<int64_t>& values) {
    auto& t = *graph().add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::INT64);
    t.add_dims(int64_t(values.size()));
    for (const int64_t v : values) t.add_int64_data(v);
    return t;
  }
  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
    auto& n = *graph().add_node();
    n.set_op_type(op);
    n.set_name(op + "_" + outputs.at(0));
    for (const auto& i : inputs) n.add_input(i);
    for (const auto& o : outputs) n.add_output(o);
    return n;
  }
  std::string save(const std::string& path) const {
    write_file(path, model.SerializeAsString());
    return path;
  }

 private:
  static void describe(onnx::ValueInfoProto& info, const std::string& name,
                       const std::vector<int64_t>& dims) {
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    for (const int64_t d : dims) {
      auto& dim = *type.mutable_shape()->add_dim();
      if (d < 0) {
        dim.set_dim_param("batch");
      } else {
        dim.set_dim_value(d);
      }
    }
  }
};

inline void set_int(onnx::NodeProto& node, const std::string& name, int64_t value) {
  auto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::INT);
  a.set_i(value);
}
inline void set_float(onnx::NodeProto& node, const std::string& name, float value) {
  auto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::FLOAT);
  a.set_f(value);
}
inline void set_ints(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  auto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::INTS);
  for (const int64_t v : values) a.add_ints(v);
}

// Conv, BatchNormalization (three outputs, marked), Relu, pool, Flatten, Gemm.
inline ModelMaker small_model() {
  ModelMaker m;
  m.tensor("conv.weight", {4, 3, 3, 3}, -0.3f);
  m.tensor("bn.weight", {4}, 1.0f);
  m.tensor("bn.bias", {4}, 0.0f);
  m.tensor("bn.running_mean", {4}, 0.0f);
  m.tensor("bn.running_var", {4}, 1.0f);
  m.tensor("fc.weight", {5, 64}, -0.2f);
  m.tensor("fc.bias", {5});
  set_ints(m.node("Conv", {"x", "conv.weight"}, {"c"}), "pads", {1, 1, 1, 1});
  set_int(m.node("BatchNormalization", {"c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"},
                 {"b", "bm", "bv"}),
          "training_mode", 1);
  m.node("Relu", {"b"}, {"r"});
  auto& pool = m.node("MaxPool", {"r"}, {"p"});
  set_ints(pool, "kernel_shape", {2, 2});
  set_ints(pool, "strides", {2, 2});
  set_int(m.node("Flatten", {"p"}, {"f"}), "axis", 1);
  set_int(m.node("Gemm", {"f", "fc.weight", "fc.bias"}, {"logits"}), "transB", 1);
  m.add_output("logits", {-1, 5});
  return m;
}

}  // namespace ren::importer::testing
