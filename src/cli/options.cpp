// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include "cli/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ren::cli {
namespace {

constexpr int64_t kMostBatch = int64_t{1} << 24;
constexpr const char* kClassesKey = "renaissance.classes";
constexpr const char* kNormalizeKey = "renaissance.normalize";

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& t : texts) out.push_back(t.c_str());
  return out;
}

int32_t position_in(const std::string& text, const std::vector<std::string>& names) {
  int32_t i = 0;
  for (const std::string& name : names) {
    if (text == name) return i;
    ++i;
  }
  return -1;
}

}  // namespace

void ModelChoice::add_path(CLI::App& command) {
  command.add_option("MODEL", path, "ONNX file, as PyTorch exported it or `train` wrote it")->required();
}

void ModelChoice::add_globs(CLI::App& command) {
  command
      .add_option(
          "--train", train,
          "Train initializers (`inspect` lists them) whose name matches GLOB (* and ?); may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command
      .add_option(
          "--freeze", freeze,
          "Keep initializers whose name matches GLOB as they are, stronger than --train; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
}

ModelHandle ModelChoice::load() const {
  const auto trained = pointers(train), frozen = pointers(freeze);
  ren_model_options options = REN_MODEL_OPTIONS_INIT;
  options.train = trained.data();
  options.train_count = trained.size();
  options.freeze = frozen.data();
  options.freeze_count = frozen.size();
  return reading_input([&] {
    return make<ModelHandle>([&](ren_model** out) { return ren_model_load(path.c_str(), &options, out); });
  });
}

const std::vector<std::string> kPrecisions{"fp32", "fp16", "bf16", "tf32"};  // as REN_PRECISION_*

void DeviceChoice::add(CLI::App& command) {
  command
      .add_option(
          "--device", device,
          "auto (the first GPU, or the CPU where there is none), cpu, cuda (the first GPU) or cuda:N, "
          "counted from 0 (default: auto)")
      ->type_name("DEVICE");
  add_choice(
      command, "--precision", precision, kPrecisions,
      "Arithmetic; fp16 and bf16 are mixed precision, with FP32 weights; tf32 is FP32 whose convolutions and "
      "matrix products round what they multiply to 11 bits, on GPUs alone");
  add_whole(command, "--threads", threads, 0, 4096,
            "Threads that compute on the CPU; 0: as many as processors");
  command.add_flag(
      "--deterministic", deterministic,
      "On a GPU: choose by rules instead of measuring, so that the same run gives the same bits on "
      "every machine of that kind");
}

void DeviceChoice::apply(ren_trainer_options& options) const {
  check(ren_set_compute_threads(threads));
  options.device = device.c_str();
  options.deterministic = deterministic ? 1 : 0;
  options.precision = position_in(precision, kPrecisions);
}

void NormalizeChoice::add(CLI::App& command) {
  auto* named = add_choice(command, "--normalize", name,
                           {"imagenet", "cifar10", "cifar100", "mnist", "clip", "half", "none"},
                           "Mean and deviation of the pixels by name; default: what the model's metadata "
                           "says, else imagenet, with one channel half");
  auto* means = add_numbers(command, "--mean", mean, Bounds::any,
                            "Instead of --normalize, with --std: mean of each channel of pixels in 0 to 1, "
                            "e.g. 0.5,0.5,0.5; one number serves all channels")
                    ->excludes(named);
  auto* deviations = add_numbers(command, "--std", std, Bounds::positive,
                                 "Standard deviation of each channel of pixels in 0 to 1 (above 0)")
                         ->excludes(named);
  means->needs(deviations);
  deviations->needs(means);
}

void NormalizeChoice::resolve(const ren_model* model, int64_t channels) {
  if (!name.empty()) return;
  if (!mean.empty()) {
    if (mean.size() != std.size()) throw CliError(kRefused, "--mean and --std have different lengths");
    return;
  }
  if (const auto text = metadata_of(model, kNormalizeKey)) {
    const auto j = nlohmann::json::parse(*text, nullptr, false);
    const auto numbers = [&](const char* key, std::vector<float>& out) {
      if (!j.is_object() || !j.contains(key) || !j[key].is_array() || j[key].empty()) return false;
      for (const auto& v : j[key]) {
        if (!v.is_number()) return false;
        out.push_back(v.get<float>());
      }
      return true;
    };
    if (!numbers("mean", mean) || !numbers("std", std) || mean.size() != std.size())
      throw CliError(kRefused, fmt::format("the model's metadata '{}' is damaged: '{}'; name --normalize",
                                           kNormalizeKey, *text));
    from_model = true;
    return;
  }
  by_default = true;
  name = channels == 1 ? "half" : "imagenet";
}

void NormalizeChoice::apply(ren_trainer_options& options) const {
  if (!name.empty()) {
    options.normalize = name.c_str();
  } else {
    options.mean = mean.data();
    options.std = std.data();
    options.channel_count = mean.size();
  }
}

std::string NormalizeChoice::text() const {
  if (!name.empty()) return name;
  return fmt::format("mean {} std {}{}", fmt::join(mean, ","), fmt::join(std, ","),
                     from_model ? " (from the model)" : "");
}

void LoaderChoice::add(CLI::App& command, bool skip) {
  const std::vector<std::string> policies = skip ? std::vector<std::string>{"fail", "skip", "replace"}
                                                 : std::vector<std::string>{"fail", "replace"};
  add_choice(command, "--bad-files", bad_files, policies,
             skip ? "A picture that can't be decoded ends the command, is skipped for another, or is "
                    "replaced by what could be decoded and grey"
                  : "A picture that can't be decoded ends the command, or is replaced by what could be "
                    "decoded and grey");
  add_whole(command, "--loader-threads", threads, 0, 1024,
            "Threads that decode pictures; 0: as many as processors");
}

void LoaderChoice::apply(ren_loader_options& options) const {
  options.bad_files = position_in(bad_files, {"fail", "skip", "replace"});
  options.threads = threads;
}

void TrainingChoice::add_memory(CLI::App& command) {
  add_whole(command, "--batch", batch, 1, kMostBatch, "Pictures a step");
  add_choice(command, "--optimizer", optimizer, {"sgd", "lars"}, "How weights follow gradients");
  add_number(command, "--momentum", momentum, Bounds::below, "Of the optimizer; 0: none");
  add_number(
      command, "--ema", ema, Bounds::below,
      "Decay a step, e.g. 0.999, of an average of the weights that is kept besides; default: no average",
      false);
  command
      .add_option("--loss", losses,
                  "Outputs with a cross entropy and their weights (1), e.g. logits:1,aux:0.3; default: the "
                  "first output")
      ->type_name("OUTPUT[:WEIGHT],...");
}

void TrainingChoice::add_recipe(CLI::App& command) {
  add_whole(command, "--epochs", epochs, 1, 1'000'000, "Times through the data");
  add_number(command, "--lr", lr, Bounds::positive, "Learning rate, at its highest");
  command.add_flag("--nesterov", nesterov, "Nesterov's momentum, as PyTorch has it");
  add_number(command, "--weight-decay", weight_decay, Bounds::not_negative, "L2, added to the gradient");
  command.add_flag("--decay-weights-only", decay_weights_only,
                   "No weight decay on biases and normalisations");
  add_choice(command, "--schedule", schedule, {"constant", "step", "cosine"},
             "How the learning rate falls after the warm-up");
  add_number(command, "--warmup-epochs", warmup_epochs, Bounds::not_negative,
             "Epochs of linear rise at the beginning, fractions too");
  add_number(command, "--final-lr", final_lr, Bounds::not_negative,
             "Learning rate at the end of the cosine schedule");
  add_number(command, "--step-epochs", step_epochs, Bounds::positive,
             "Epochs between two reductions of the step schedule, which needs it", false);
  add_number(command, "--gamma", gamma, Bounds::positive, "Factor of a reduction of the step schedule");
  add_number(command, "--label-smoothing", label_smoothing, Bounds::below,
             "As PyTorch's cross_entropy has it");
  add_whole(command, "--seed", seed, "Of shuffling and augmentation");
  add_number(command, "--loss-scale", loss_scale, Bounds::positive,
             "Mixed precision: the first loss scale; it halves when gradients overflow and grows again");
  add_whole(command, "--max-skipped-steps", max_skipped_steps, 1, 1000000,
            "Mixed precision: overflow in more steps in a row ends training");
}

void TrainingChoice::apply(ren_trainer_options& o) const {
  o.batch = batch;
  o.epochs = epochs;
  o.learning_rate = lr;
  o.momentum = momentum;
  o.nesterov = nesterov ? 1 : 0;
  o.weight_decay = weight_decay;
  o.decay_weights_only = decay_weights_only ? 1 : 0;
  o.warmup_epochs = warmup_epochs;
  o.final_learning_rate = final_lr;
  o.step_epochs = step_epochs;
  o.gamma = gamma;
  o.label_smoothing = float(label_smoothing);
  o.ema_decay = ema;
  o.optimizer = position_in(optimizer, {"sgd", "lars"});
  o.schedule = position_in(schedule, {"constant", "step", "cosine"});
  if (!losses.empty()) o.losses = losses.c_str();
  o.seed = seed;
  o.loss_scale = float(loss_scale);
  o.max_skipped_steps = max_skipped_steps;
}

ren_model_info info_of(const ModelHandle& model) {
  ren_model_info info = REN_MODEL_INFO_INIT;
  check(ren_model_get_info(model.get(), &info));
  return info;
}

std::string output_name(const ModelHandle& model, int64_t index) {
  return text_from(
      [&](char* b, size_t c, size_t* n) { return ren_model_output_name(model.get(), index, b, c, n); });
}

std::optional<std::string> metadata_of(const ren_model* model, const std::string& key) {
  size_t needed = 0;
  const int32_t status = ren_model_metadata(model, key.c_str(), nullptr, 0, &needed);
  if (status == REN_ERROR_NOT_FOUND) return std::nullopt;
  check(status);
  return text_from(
      [&](char* b, size_t c, size_t* n) { return ren_model_metadata(model, key.c_str(), b, c, n); });
}

DatasetHandle open_data(const std::string& uri, const std::string& validation) {
  ren_dataset_options options = REN_DATASET_OPTIONS_INIT;
  if (!validation.empty()) options.validation_uri = validation.c_str();
  return reading_input([&] {
    return make<DatasetHandle>([&](ren_dataset** d) { return ren_dataset_open(uri.c_str(), &options, d); });
  });
}

std::vector<std::string> classes_of(const ren_dataset* dataset) {
  int64_t count = 0;
  check(ren_dataset_class_count(dataset, &count));
  std::vector<std::string> classes;
  for (int64_t i = 0; i < count; ++i)
    classes.push_back(
        text_from([&](char* b, size_t c, size_t* n) { return ren_dataset_class_name(dataset, i, b, c, n); }));
  return classes;
}

std::optional<std::vector<std::string>> classes_in(const ren_model* model) {
  const auto text = metadata_of(model, kClassesKey);
  if (!text) return std::nullopt;
  const auto j = nlohmann::json::parse(*text, nullptr, false);
  if (!j.is_array() || !std::all_of(j.begin(), j.end(), [](const auto& v) { return v.is_string(); }))
    return std::nullopt;
  return j.get<std::vector<std::string>>();
}

void check_class_count(const ModelHandle& model, const std::string& losses, size_t classes,
                       const std::string& remedy) {
  std::string name = losses.substr(0, losses.find(','));
  name = name.substr(0, name.rfind(':'));
  const int64_t outputs = info_of(model).outputs;
  for (int64_t i = 0; i < outputs; ++i) {
    if (!name.empty() ? output_name(model, i) != name : i != 0) continue;
    ren_output_info o = REN_OUTPUT_INFO_INIT;
    check(ren_model_output_info(model.get(), i, &o));
    if (o.channels != int64_t(classes))
      throw CliError(kRefused, fmt::format("the data has {} classes, the model's output '{}' has {}: {}",
                                           classes, output_name(model, i), o.channels, remedy));
  }
}

void add_output(CLI::App& command, Output& output, bool quiet) {
  command.add_flag("--json", output.json, "One JSON object a line on standard output, for machines");
  if (quiet) command.add_flag("--quiet", output.quiet, "Results and errors only");
}

}  // namespace ren::cli
