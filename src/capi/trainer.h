// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
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
  UseFlag use;
};

TrainerOptions trainer_options(const ren_trainer_options& options, const Model& model);
Precision precision_of(int32_t value);

}  // namespace ren::capi

struct ren_trainer : ren::capi::Handle<ren::capi::TrainerState, 0x52454e5f5452414e> {};
