// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/model.h"
#include "engine/train/trainer.h"

namespace ren::capi {

struct TrainerState {
  std::shared_ptr<const Model> model;  // for layouts, names and the export
  std::unique_ptr<Trainer> trainer;
  std::vector<std::byte> images;  // a pushed batch in the engine's layout
  std::vector<Place> data;        // that it was trained on
  // What an export tells of them (metadata): JSON; empty: nothing is known.
  std::string normalization, classes;
  UseFlag use;
};

// How pictures reach the network, as "renaissance.normalize" has it: {"mean": [...], "std": [...]}, of x =
// byte / 255. Empty for images that are no bytes.
std::string normalization_text(const ren_trainer_options& options, size_t channels);
TrainerOptions trainer_options(const ren_trainer_options& options, const Model& model);
Precision precision_of(int32_t value);

}  // namespace ren::capi

struct ren_trainer : ren::capi::Handle<ren::capi::TrainerState, 0x52454e5f5452414e> {};
