// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/api.h"
#include "cli/output.h"

namespace ren::cli {

// Options that several commands share; each struct adds its own to a command.
struct ModelChoice {
  std::string path;
  std::vector<std::string> train, freeze;

  void add_path(CLI::App& command);
  void add_globs(CLI::App& command);
  ModelHandle load() const;
};

struct DeviceChoice {
  std::string device = "auto", precision = "fp32";
  int threads = 0;
  bool deterministic = false;

  void add(CLI::App& command);
  void apply(ren_trainer_options& options) const;  // points into this object
};

// Normalisation: from options, else what the model's metadata says, else the usual.
struct NormalizeChoice {
  std::string name;
  std::vector<float> mean, std;
  bool from_model = false, by_default = false;  // after resolve()

  void add(CLI::App& command);
  void resolve(const ren_model* model, int64_t channels);
  void apply(ren_trainer_options& options) const;
  std::string text() const;
};

struct LoaderChoice {
  std::string bad_files = "fail";
  int threads = 0;

  // skip: another picture can take a bad one's place; not where each picture is answered for.
  void add(CLI::App& command, bool skip = true);
  void apply(ren_loader_options& options) const;
};

// What training is like; `plan` takes the part that decides about memory.
struct TrainingChoice {
  int64_t batch = 64, epochs = 1;
  double lr = 0.1, momentum = 0.9, weight_decay = 0, warmup_epochs = 0, final_lr = 0, step_epochs = 0,
         gamma = 0.1;
  double label_smoothing = 0, ema = 0, loss_scale = 65536;
  int max_skipped_steps = 50;
  bool nesterov = false, decay_weights_only = false;
  std::string optimizer = "sgd", schedule = "constant", losses;
  uint64_t seed = 0;

  void add_memory(CLI::App& command);
  void add_recipe(CLI::App& command);
  void apply(ren_trainer_options& options) const;
};

ren_model_info info_of(const ModelHandle& model);
std::string output_name(const ModelHandle& model, int64_t index);
std::optional<std::string> metadata_of(const ren_model* model, const std::string& key);
DatasetHandle open_data(const std::string& uri, const std::string& validation);  // empty: none
std::vector<std::string> classes_of(const ren_dataset* dataset);
// The class names that `train` wrote into the model's metadata; none when they are no list of names.
std::optional<std::vector<std::string>> classes_in(const ren_model* model);
// Refuses data with another number of classes than the first output of `losses` (or of the model) has.
void check_class_count(const ModelHandle& model, const std::string& losses, size_t classes,
                       const std::string& remedy);
void add_output(CLI::App& command, Output& output, bool quiet = true);

}  // namespace ren::cli
