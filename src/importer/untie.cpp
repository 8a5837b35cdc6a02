// SPDX-License-Identifier: Apache-2.0
// PyTorch's default exporter merges initializers of equal value, so that the layers of a fresh
// model come to share tensors. Its own metadata tell which: the signature names every parameter,
// and each node says which module it comes from. Weights that are tied on purpose are one
// parameter in the signature too, and stay tied.
#include <algorithm>

#include "importer/import_context.h"

namespace ren::importer {

namespace {

// The module of a node: the last but one of "['', 'features', 'features.0', 'conv2d']".
std::string module_of(const onnx::NodeProto& node) {
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() != "pkg.torch.onnx.name_scopes") continue;
    const std::string& text = entry.value();
    std::vector<std::string> names;
    for (size_t begin = text.find('\''); begin != std::string::npos;) {
      const size_t end = text.find('\'', begin + 1);
      if (end == std::string::npos) break;
      names.push_back(text.substr(begin + 1, end - begin - 1));
      begin = text.find('\'', end + 1);
    }
    return names.size() < 2 ? std::string() : names[names.size() - 2];
  }
  return {};
}

// What PyTorch calls the parameter that enters here; empty where the operator doesn't say.
std::string leaf_of(const std::string& op, int input) {
  static const std::set<std::string> kLayers = {"Conv",
                                                "Gemm",
                                                "BatchNormalization",
                                                "LayerNormalization",
                                                "InstanceNormalization",
                                                "GroupNormalization"};
  if (kLayers.count(op)) return input == 1 ? "weight" : input == 2 ? "bias" : "";
  if (op == "MatMul" || op == "PRelu") return "weight";
  return {};
}

// The parameter of this module that the file lacks and that fits here.
std::string find_missing(const std::set<std::string>& missing, const std::string& module,
                         const std::string& op, int input) {
  const std::string prefix = module.empty() ? std::string() : module + ".";
  const std::string leaf = leaf_of(op, input);
  if (!leaf.empty()) return missing.count(prefix + leaf) ? prefix + leaf : std::string();
  if (op != "Mul" && op != "Add") return {};
  std::vector<std::string> candidates;
  for (auto it = missing.lower_bound(prefix); it != missing.end() && it->rfind(prefix, 0) == 0; ++it)
    if (it->find('.', prefix.size()) == std::string::npos) candidates.push_back(*it);
  const std::string usual = prefix + (op == "Mul" ? "weight" : "bias");
  if (std::find(candidates.begin(), candidates.end(), usual) != candidates.end()) return usual;
  return candidates.size() == 1 ? candidates[0] : std::string();
}

}  // namespace

void ImportContext::untie_merged() {
  const std::set<std::string> missing = policy.missing_parameters();
  if (missing.empty()) return;
  for (const auto& [value, readers] : consumers) {
    const auto found = values.find(value);
    if (found == values.end() || !found->second.is(Kind::weight) || readers.size() < 2) continue;
    for (const int i : readers) {
      const onnx::NodeProto& node = file.graph().node(i);
      const std::string module = module_of(node);
      const size_t dot = value.rfind('.');
      if (dot != std::string::npos && value.substr(0, dot) == module) continue;  // its own
      for (int k = 0; k < node.input_size(); ++k) {
        if (node.input(k) != value) continue;
        const std::string name = find_missing(missing, module, node.op_type(), k);
        if (name.empty()) continue;
        OnnxValue copy = found->second;
        copy.copy = name;
        untied[{i, k}] = std::move(copy);
        untied_uses[{found->second.file_tensor, name}].emplace_back(i, k);
      }
    }
  }
  if (!untied.empty())
    warn(fmt::format(
        "the exporter merged parameters of equal value; {} uses are kept apart again, and export adds their "
        "initializers",
        untied.size()));
}

}  // namespace ren::importer
