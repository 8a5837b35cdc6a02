// SPDX-License-Identifier: Apache-2.0
#include "importer/training_policy.h"

#include <algorithm>
#include <sstream>

#include "engine/base/status.h"
#include "importer/metadata.h"

namespace ren::importer {

bool matches_glob(const std::string& name, const std::string& glob) {
  size_t n = 0, g = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

const std::string* first_match(const std::vector<std::string>& globs, const std::string& name) {
  for (const auto& glob : globs)
    if (matches_glob(name, glob)) return &glob;
  return nullptr;
}

// Lines such as "p_fc_weight: PARAMETER target='fc.weight'".
void read_signature(const std::string& text, std::set<std::string>& parameters,
                    std::set<std::string>& buffers) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# outputs", 0) == 0) break;
    const bool parameter = line.find(": PARAMETER ") != std::string::npos;
    const bool buffer = line.find(": BUFFER ") != std::string::npos;
    if (!parameter && !buffer) continue;
    const size_t begin = line.find("target='");
    if (begin == std::string::npos) continue;
    const size_t end = line.find('\'', begin + 8);
    if (end == std::string::npos) continue;
    (parameter ? parameters : buffers).insert(line.substr(begin + 8, end - begin - 8));
  }
}

bool trained_by_role(WeightRole role) { return role != WeightRole::constant_operand; }

std::string role_text(WeightRole role) {
  switch (role) {
    case WeightRole::weight:
      return "a layer's weight";
    case WeightRole::bias:
    case WeightRole::folded_bias:
      return "a layer's bias";
    case WeightRole::norm_scale:
      return "a normalisation's scale";
    case WeightRole::norm_bias:
      return "a normalisation's bias";
    case WeightRole::slope:
      return "a PRelu slope";
    case WeightRole::mul_operand:
      return "operand of a product";
    case WeightRole::add_operand:
      return "operand of a sum";
    case WeightRole::constant_operand:
      return "operand of an operation that has no weights";
  }
  return "";
}

}  // namespace

bool is_generated_name(const std::string& name) {
  if (all_digits(name) || name.find("::") != std::string::npos) return true;
  if (!name.empty() && name[0] == '/') return true;
  static const char* const kStems[] = {"val_",    "Constant_", "constant_",       "const_",
                                       "scalar_", "tmp_",      "_tensor_constant"};
  for (const char* stem : kStems)
    if (name.rfind(stem, 0) == 0) return true;
  return false;
}

bool is_dotted_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot != std::string::npos && !is_generated_name(name);
}

TrainingPolicy::TrainingPolicy(const OnnxFile& file, const ImportOptions& options)
    : file_(file), options_(options) {
  for (const auto& entry : file.model.metadata_props()) {
    if (entry.key() != "renaissance.trainable") continue;
    helper_ = trainable_names(entry.value());
  }
  for (const auto& entry : file.graph().metadata_props())
    if (entry.key() == "pkg.torch.export.ExportedProgram.graph_signature")
      read_signature(entry.value(), signature_parameters_, signature_buffers_);
}

Decision TrainingPolicy::decide(const std::string& name, const FileTensor& tensor, WeightRole role,
                                bool generated_constant) {
  if (const auto* glob = first_match(options_.freeze, name))
    return {false, fmt::format("frozen by '{}'", *glob)};
  if (const auto* glob = first_match(options_.train, name))
    return {true, fmt::format("trained by '{}'", *glob)};
  if (helper_) {
    const bool listed = helper_->count(name) != 0;
    return {listed, listed ? "listed in renaissance.trainable" : "not listed in renaissance.trainable"};
  }
  if (signature_parameters_.count(name)) return {true, "a parameter of the exported module"};
  if (signature_buffers_.count(name)) return {false, "a buffer of the exported module"};
  if (!trained_by_role(role)) return {false, role_text(role)};
  const bool scalar = product(tensor.dims) == 1;
  const bool free_operand = role == WeightRole::mul_operand || role == WeightRole::add_operand;
  const bool generated = is_generated_name(name);
  if (free_operand && scalar && generated) return {false, "a scalar that the exporter made"};
  if (free_operand && scalar && tensor.place != FileTensor::Place::initializer && !is_dotted_name(name))
    return {false, "a scalar constant"};
  if (generated_constant) return {false, "constant ones or zeros that the exporter made"};
  return {true, role_text(role)};
}

bool TrainingPolicy::looks_trainable(const FileTensor& tensor) const {
  const std::string& name = tensor.name;
  if (first_match(options_.freeze, name)) return false;
  if (first_match(options_.train, name)) return true;
  if (helper_) return helper_->count(name) != 0;
  if (signature_parameters_.count(name)) return true;
  if (signature_buffers_.count(name)) return false;
  return product(tensor.dims) > 1 && is_dotted_name(name);
}

int TrainingPolicy::normalisations_in_signature() const {
  return int(std::count_if(signature_buffers_.begin(), signature_buffers_.end(),
                           [](const std::string& name) { return name.ends_with("running_mean"); }));
}

std::set<std::string> TrainingPolicy::missing_parameters() const {
  std::set<std::string> missing;
  for (const auto& name : signature_parameters_)
    if (!file_.tensor_by_name.count(name)) missing.insert(name);
  return missing;
}

void TrainingPolicy::finish(const std::vector<ParameterInfo>& tensors,
                            std::vector<std::string>& warnings) const {
  const auto check = [&](const std::vector<std::string>& globs, const char* what) {
    for (const auto& glob : globs) {
      const bool found = std::any_of(tensors.begin(), tensors.end(),
                                     [&](const ParameterInfo& t) { return matches_glob(t.name, glob); });
      if (!found)
        fail(StatusCode::not_found, "'{}' in the list of tensors to {} matches no tensor of the model", glob,
             what);
    }
  };
  check(options_.train, "train");
  check(options_.freeze, "freeze");
  for (const auto& info : tensors)
    if (first_match(options_.train, info.name) && !first_match(options_.freeze, info.name) && !info.trained &&
        std::find(options_.train.begin(), options_.train.end(), info.name) != options_.train.end())
      fail(StatusCode::invalid_argument, "'{}' cannot be trained: it is {}", info.name, info.reason);
  std::set<std::string> present;
  for (const auto& info : tensors) present.insert(info.name);
  const auto missing = [&](const std::set<std::string>& names, const char* where) {
    std::string list;
    int count = 0;
    for (const auto& name : names)
      if (!present.count(name)) list += fmt::format("{}{}", count++ ? ", " : "", name);
    if (count > 0)
      warnings.push_back(fmt::format(
          "{} parameters are named in {}, but the file has no tensors of these names: the exporter "
          "folded them away, renamed them or merged them with equal ones, which then train as one: {}",
          count, where, list));
  };
  if (helper_) missing(*helper_, "renaissance.trainable");
  missing(signature_parameters_, "the exporter's graph signature");
}

}  // namespace ren::importer
