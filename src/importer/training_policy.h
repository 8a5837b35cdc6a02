// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "importer/importer.h"
#include "importer/onnx_file.h"

namespace ren::importer {

// How a floating-point tensor of the file is used.
enum class WeightRole : uint8_t {
  weight,
  bias,         // of Conv, Gemm, MatMul
  folded_bias,  // of a Conv that a normalisation was folded into: zeros too are real
  norm_scale,
  norm_bias,
  slope,  // of normalisations, of PRelu
  mul_operand,
  add_operand,
  constant_operand  // of anything else
};

struct Decision {
  bool trained = false;
  std::string reason;
};

// Decides what is trained: the user's globs, then the export helper's list, then the
// exporter's signature, then the role.
class TrainingPolicy {
 public:
  TrainingPolicy(const OnnxFile& file, const ImportOptions& options);

  Decision decide(const std::string& name, const FileTensor& tensor, WeightRole role,
                  bool generated_constant);
  // Whether computing with the tensor while importing would lose something trainable.
  bool looks_trainable(const FileTensor& tensor) const;
  // BatchNormalizations of the module that was exported, as far as the signature tells.
  int normalisations_in_signature() const;
  // Parameters that the exporter's signature names and the file lacks.
  std::set<std::string> missing_parameters() const;
  // Once all is imported: globs without a match (throws), listed names that the file lacks.
  void finish(const std::vector<ParameterInfo>& tensors, std::vector<std::string>& warnings) const;

 private:
  const OnnxFile& file_;
  const ImportOptions& options_;
  std::optional<std::set<std::string>> helper_;  // metadata renaissance.trainable
  std::set<std::string> signature_parameters_, signature_buffers_;
};

bool matches_glob(const std::string& name, const std::string& glob);
// Names that exporters invent: "val_4", "onnx::Mul_12", "/layer/Constant_output_0", "37".
bool is_generated_name(const std::string& name);
bool is_dotted_name(const std::string& name);

}  // namespace ren::importer
