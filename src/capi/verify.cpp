// SPDX-License-Identifier: Apache-2.0
#include "engine/train/verify.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "capi/device.h"
#include "capi/model.h"
#include "capi/repeated_key.h"
#include "capi/trainer.h"
#include "engine/base/file.h"

namespace ren::capi {
namespace {

std::set<std::string> trained_names(const importer::ImportedModel& m) {
  std::set<std::string> names;
  for (const Parameter& p : m.graph.parameters)
    if (p.trainable) names.insert(p.name);
  return names;
}

// The model with exactly the golden's parameters trained; `notes` tells where the importer alone
// would have chosen otherwise.
std::shared_ptr<Model> import_for(const std::string& path, const SafeTensorsFile& golden,
                                  std::vector<std::string>& notes) {
  auto model = std::make_shared<Model>();
  model->path = path;
  model->imported = importer::import_model(path);
  const auto wanted = golden_parameters(golden);
  if (wanted.empty()) return model;
  const std::set<std::string> own = trained_names(model->imported),
                              golden_names(wanted.begin(), wanted.end());
  importer::ImportOptions options;
  std::vector<std::string> unknown;
  for (const std::string& name : golden_names) {
    if (own.count(name) > 0) continue;
    const auto& tensors = model->imported.tensors;
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
    if (found == tensors.end()) {
      unknown.push_back(name);
      continue;
    }
    options.train.push_back(name);
    notes.push_back(fmt::format("trained as in the golden file; the importer alone would not: '{}' ({})",
                                name, found->reason));
  }
  if (!unknown.empty()) {
    const size_t shown = std::min<size_t>(unknown.size(), 4);
    fail(StatusCode::invalid_data,
         "the golden file does not belong to this model: {} of the {} tensors that it trains are none of the "
         "model's ('{}'{})",
         unknown.size(), wanted.size(), fmt::join(unknown.begin(), unknown.begin() + int64_t(shown), "', '"),
         unknown.size() > shown ? " ..." : "");
  }
  for (const std::string& name : own) {
    if (golden_names.count(name) > 0) continue;
    options.freeze.push_back(name);
    notes.push_back(fmt::format("not trained, as in the golden file; the importer alone would: '{}'", name));
  }
  if (options.train.empty() && options.freeze.empty()) return model;
  model->imported = importer::import_model(path, options);
  return model;
}

Peer read_peer(const std::string& path) {
  const std::string text = read_file(path);
  if (const auto repeated = find_repeated_key(text))
    fail(StatusCode::invalid_data, "the peer file '{}': '{}' is given more than once; record it again", path,
         repeated->key);
  return parse_peer(text, path);
}

VerifyModel verify_model(const std::shared_ptr<Model>& model) {
  const importer::ImportedModel& m = model->imported;
  VerifyModel out;
  out.state = state_for_trainer(*model);
  out.input = m.input.name;
  for (const auto& layout : m.parameter_layouts) out.parameters.push_back(layout.name);
  for (const auto& layout : m.buffer_layouts) out.buffers.push_back(layout.name);
  out.parameter_to_file = [model](int32_t i, const std::vector<float>& values) {
    return to_file(model->imported.parameter_layouts[size_t(i)], values);
  };
  out.buffer_to_file = [model](int32_t i, const std::vector<float>& values) {
    return to_file(model->imported.buffer_layouts[size_t(i)], values);
  };
  return out;
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" int32_t ren_verify(const char* model_path, const char* golden_path,
                              const ren_verify_options* given, ren_report** out) {
  return guard([&] {
    const std::string model_file = text_of(model_path, "model_path"),
                      golden_file = text_of(golden_path, "golden_path");
    const ren_verify_options options = read_options(given, "ren_verify_options");
    not_null(out, "report");
    if (!std::isfinite(options.tolerance) || options.tolerance < 0)
      fail(StatusCode::invalid_argument, "tolerance is {}", options.tolerance);
    VerifyOptions chosen;
    chosen.precision = precision_of(options.precision);
    chosen.tolerance = options.tolerance;
    const ChosenDevice device = choose_device(text_or(options.device, "auto", "device"));
    chosen.backend = device.backend;
    chosen.device_index = device.index;
    if (options.peer != nullptr) {
      const std::string path = text_of(options.peer, "peer");
      chosen.peer = read_peer(path);
    }
    const SafeTensorsFile golden = SafeTensorsFile::read(golden_file);
    std::vector<std::string> notes;
    const auto model = import_for(model_file, golden, notes);
    VerifyResult result = verify_golden(verify_model(model), golden, chosen);
    result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
    nlohmann::json json = result.json();
    json["model"] = model_file;
    json["golden"] = golden_file;
    if (chosen.peer) json["peer"]["file"] = options.peer;
    give_report(out, {result.text(), json_text(json), {}, result.passed()});
  });
}
