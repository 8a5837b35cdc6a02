// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "importer/axis_map.h"
#include "importer/importer.h"
#include "ren_onnx.pb.h"

namespace ren::importer {

namespace onnx = ::ren_onnx;

// A floating-point tensor of the file: an initializer or the value of a Constant node.
struct FileTensor {
  enum class Place : uint8_t { initializer, constant_tensor, constant_float, constant_floats };
  Place place = Place::initializer;
  int index = 0;  // among the initializers or the nodes
  std::string name;
  Dims dims;
  int type = 0;  // TensorProto::DataType
};

// External data is read with the file and held in raw_data, though the tensors stay marked as external: what
// an export needs later is in memory then, and whatever happens to those files costs nobody a result.
class OnnxFile {
 public:
  std::string path, folder;  // folder: canonical; external data may lie nowhere else
  onnx::ModelProto model;
  std::vector<FileTensor> tensors;
  std::map<std::string, int> tensor_by_name;
  std::set<std::string> external_files;  // canonical

  const onnx::GraphProto& graph() const { return model.graph(); }
  std::vector<float> values(const FileTensor& tensor) const;
};

// Parses and validates; throws with everything that is wrong.
std::shared_ptr<OnnxFile> read_onnx(const std::string& path);

// ---- TensorProto ----

const char* type_name(int type);
bool is_real_type(int type);
bool is_integer_type(int type);  // whole numbers and BOOL
// Bytes of one element in raw data; 0 for types that this importer does not read.
size_t element_size(int type);
// Checks dims, type and amount of data without decoding; an empty text means all is well.
std::string check_tensor(const onnx::TensorProto& tensor, const std::string& folder);
std::vector<double> decode_reals(const onnx::TensorProto& tensor, const std::string& folder);
std::vector<float> decode_floats(const onnx::TensorProto& tensor, const std::string& folder);
std::vector<int64_t> decode_integers(const onnx::TensorProto& tensor, const std::string& folder);
// Writes floats back in the tensor's own type and field; for external data use encode_raw.
void encode_floats(onnx::TensorProto& tensor, std::span<const float> values);
std::string encode_raw(int type, std::span<const float> values);

struct ExternalData {
  std::string location, path;  // path: resolved
  uint64_t offset = 0, length = 0;
};
bool is_external(const onnx::TensorProto& tensor);
// Resolves and checks where the bytes lie; throws invalid_model, not_found or io.
ExternalData external_data(const onnx::TensorProto& tensor, const std::string& folder);
std::string read_external(const onnx::TensorProto& tensor, const std::string& folder);
// Initializers and values of nodes that lie outside the file.
std::vector<onnx::TensorProto*> external_tensors(onnx::ModelProto& model);

// Product of the extents, -1 when one is negative or the product leaves 2^40.
int64_t checked_elements(const onnx::TensorProto& tensor);

}  // namespace ren::importer
