// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

// Reads an ONNX file as a forward graph that can be trained, and writes trained values back
// into the same file.
namespace ren::importer {

struct ImportOptions {
  // Globs ('*' and '?') on initializer names, stronger than every other evidence; a name that
  // matches both is frozen. A glob that matches nothing is an error.
  std::vector<std::string> train, freeze;
  // Globs on the names of BatchNormalization nodes: normalise by the running statistics
  // (frozen) or by the batch's, whatever the file says.
  std::vector<std::string> train_norms, freeze_norms;
  // What stays of the running statistics at each step (ONNX momentum) where the file says 1,
  // which would keep them for ever; exporters write it for inference models.
  float fallback_norm_keep = 0.9f;
};

// The original file: everything that is in it, for export. Opaque here, so that nobody but
// the importer sees protobuf.
class OnnxFile;

// What happened to one floating-point tensor of the file (an initializer or a Constant node).
enum class TensorRole : uint8_t { parameter, buffer, constant, unused };
const char* name_of(TensorRole role);

struct ParameterInfo {
  std::string name;  // as in the file
  std::vector<int64_t> onnx_shape;
  Shape engine_shape;  // meaningful for parameters and buffers
  TensorRole role = TensorRole::constant;
  int32_t index = -1;  // in Graph::parameters or Graph::buffers
  bool trained = false;
  std::string reason;
};

// How a parameter's or buffer's values lie in the file and in the engine: engine element i is
// the file's element source[i] (empty: the same order).
struct Layout {
  std::string name;       // as the user sees it: the file's tensor, unless it had to be split
  std::string stored_in;  // the file's tensor that it comes from; empty: made while importing
  std::vector<int64_t> onnx_shape;
  Shape engine_shape;
  std::vector<int32_t> source;
  // The file's tensor serves another role as well: export adds an initializer `name` and
  // feeds it to these inputs of nodes (node, input), or drops the Identity that gave `name`.
  bool added = false;
  std::vector<std::pair<int, int>> rewired;
};

struct InputInfo {
  std::string name;
  int64_t channels = 0, height = 0, width = 0;
  bool channels_last = false;       // the file's input is [N,H,W,C] (its first node transposes it)
  std::vector<int64_t> onnx_shape;  // as the file has it; the first extent is the batch, whatever it is
};

struct ImportedModel {
  Graph graph;  // forward; outputs are logits (a trailing softmax is left off, see notes)
  std::vector<std::vector<float>> parameters;  // initial values in engine layout, by Graph::parameters
  std::vector<std::vector<float>> buffers;     // by Graph::buffers
  std::vector<Layout> parameter_layouts, buffer_layouts;
  std::vector<ParameterInfo> tensors;  // every floating-point tensor of the file, in its order
  // By Graph::outputs, as the file has them; the first extent is the batch, whatever it is.
  std::vector<std::vector<int64_t>> output_shapes;
  InputInfo input;
  bool dynamic_batch = false;
  int64_t static_batch = 0;  // the file's batch when it is fixed
  int64_t opset = 0, ir_version = 0;
  std::string producer;
  std::vector<std::string> notes, warnings;
  std::map<std::string, std::string> metadata;  // the file's metadata_props
  std::shared_ptr<const OnnxFile> file;
  std::vector<std::string> external_files;  // that the file's external data was read from

  // Between the engine's layout and the file's.
  std::vector<float> to_onnx(int parameter, std::span<const float> engine) const;
  std::vector<float> from_onnx(int parameter, std::span<const float> onnx) const;
  std::vector<float> buffer_to_onnx(int buffer, std::span<const float> engine) const;
  std::vector<float> buffer_from_onnx(int buffer, std::span<const float> onnx) const;
  const std::vector<int64_t>& onnx_shape(int parameter) const;
};

// Throws invalid_model, unsupported, not_found or io with every problem listed at once.
ImportedModel import_model(const std::string& path, const ImportOptions& options = {});

struct ExportOptions {
  // Trained nodes take their inference form: BatchNormalization with one output and no
  // training mode, no Dropout.
  bool inference_form = false;
  std::map<std::string, std::string> metadata;  // put into metadata_props, replacing equal keys
};

// Writes the original file with new values, by Graph::parameters and Graph::buffers in engine
// layout; atomically. What was written is read back and compared before it takes its place. Returns notes for
// the user (an initializer that had to be added, for instance). Throws invalid_argument for a path that is
// one of the model's external data files; the model's own file may be written.
//
// External data goes to one file beside the model's, NAME.HASH.data, HASH of its content: it is complete
// before the model's file is replaced, so that at any time the model refers to its own data. No data file is
// ever removed, since other models may refer to it; a note names those that the former model in this place
// referred to. A data file that is there already, with the same content, is used as it is.
std::vector<std::string> export_model(const ImportedModel& model,
                                      std::span<const std::vector<float>> parameters,
                                      std::span<const std::vector<float>> buffers, const std::string& path,
                                      const ExportOptions& options = {});

}  // namespace ren::importer
