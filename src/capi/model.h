// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/places.h"
#include "capi/report.h"
#include "engine/train/trainer.h"
#include "importer/importer.h"

namespace ren::capi {

struct Model {
  importer::ImportedModel imported;
  std::string path;
  // Of imported.parameters and buffers, which ren_model_tensor_set changes; the rest never changes.
  mutable std::shared_mutex values;

  // Its external data; with_file: the ONNX file as well.
  std::vector<Place> places(bool with_file) const;
};

// Values between the engine's order and the file's.
std::vector<float> to_file(const importer::Layout& layout, std::span<const float> engine);
std::vector<float> from_file(const importer::Layout& layout, std::span<const float> file);

// The index of a name among layouts, or -1.
int32_t find_layout(const std::vector<importer::Layout>& layouts, const std::string& name);
// Throws not_found, naming what there is nearby.
[[noreturn]] void no_such_tensor(const Model& model, const std::string& name, const char* kind);

ModelState state_for_trainer(const Model& model);
importer::ExportOptions export_options(const ren_export_options& options);
void give_notes(ren_report** out, const std::vector<std::string>& notes);
Report inspect(const Model& model);

}  // namespace ren::capi

struct ren_model : ren::capi::Handle<ren::capi::Model, 0x52454e5f4d4f444c> {};
