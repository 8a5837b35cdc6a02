// SPDX-License-Identifier: Apache-2.0
// The command `train`.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "cli/commands.h"
#include "cli/loader_use.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/signals.h"
#include "cli/values.h"

namespace ren::cli {
namespace {

constexpr int64_t kMostCacheMib = 1 << 20;  // a TiB

struct Train {
  ModelChoice model;
  DeviceChoice device;
  NormalizeChoice normalize;
  LoaderChoice loader;
  TrainingChoice training;
  std::string data, validation, augment = "auto", out, out_ema, checkpoint, resume;
  int64_t checkpoint_every = 0, cache_mib = 512;
  std::string decode = "exact";
  bool drop_last = false, inference = false;
  Output output;

  void run();

 private:
  void check_options() const;
  void check_outputs() const;
  void open_data();
  void warn(const std::string& text);
  void warn_of_all();
  void check_classes() const;
  void make_trainer();
  LoaderHandle make_loader(const char* split, bool trains) const;
  void announce();
  void fit();
  static int32_t on_progress(void* user, const ren_progress* p) {
    return static_cast<Train*>(user)->observe(*p);
  }
  int32_t observe(const ren_progress& p);
  void report_bad_files(const LoaderHandle& from, const char* split);
  void write_model(const std::string& path, bool averaged);
  void write_models();
  std::string way_on() const;
  std::vector<std::string> rescue_places(bool averaged) const;
  std::string rescue(const std::string& path, bool averaged, const std::string& why);

  ModelHandle model_;
  ren_model_info info_ = REN_MODEL_INFO_INIT;
  DatasetHandle dataset_;
  std::vector<std::string> classes_;
  int64_t training_size_ = 0, validation_size_ = 0;  // 0: no validation
  int64_t asked_batch_ = 0;
  TrainerHandle trainer_;
  LoaderHandle training_, validation_;
  LoaderUse loader_use_;
  ren_progress last_ = REN_PROGRESS_INIT;
  bool checkpoint_is_written_ = false;  // the latest one
};

nlohmann::json json_of(const ren_metrics& m) {
  return {{"loss", m.loss},       {"top1", m.top1},       {"top5", m.top5},
          {"samples", m.samples}, {"skipped", m.skipped}, {"seconds", m.seconds}};
}

// Before anything is read, and again when the model tells its size and its files.
void Train::check_outputs() const {
  const uint64_t size = model_ == nullptr ? file_bytes(model.path) : model_bytes(model.path, model_);
  const std::vector<NeededFile> resumed = {{resume, "the checkpoint to resume from"}};
  PlannedOutputs outputs;
  outputs.keep({{data, "the data set"}, {validation, "the validation data"}});
  if (augment.ends_with(".json")) outputs.keep({{augment, "the augmentation file"}});
  outputs.add("--out", out, size, resumed);
  if (!out_ema.empty()) outputs.add("--out-ema", out_ema, size, resumed);
  if (!checkpoint.empty()) {
    const int values_a_weight = 1 + (training.momentum > 0 ? 1 : 0) + (training.ema > 0 ? 1 : 0);
    outputs.add("--checkpoint", checkpoint, model_ == nullptr ? 0 : checkpoint_bytes(model_, values_a_weight),
                {{model.path, "the model"}}, 2);
  }
  if (model_ != nullptr) outputs.keep(external_files(model_));
  outputs.check();
  // What somebody trained before is not replaced by what has hardly begun.
  std::error_code unknown;
  const bool goes_on = !resume.empty() && std::filesystem::equivalent(resume, checkpoint, unknown);
  if (model_ == nullptr && !checkpoint.empty() && !goes_on && file_bytes(checkpoint) > 0)
    throw CliError(kRefused,
                   fmt::format("--checkpoint '{}' is there already: go on from it with --resume {}, name "
                               "another file, or remove it",
                               checkpoint, checkpoint));
}

void Train::check_options() const {
  if (!out_ema.empty() && training.ema <= 0) throw CliError(kRefused, "--out-ema needs --ema");
  if (checkpoint_every > 0 && checkpoint.empty())
    throw CliError(kRefused, "--checkpoint-every needs --checkpoint");
  if (training.schedule == "step" && training.step_epochs <= 0)
    throw CliError(kRefused, "--schedule step needs --step-epochs");
}

void Train::warn(const std::string& text) {
  output.event({{"event", "warning"}, {"message", text}});
  output.note("warning: " + text);
}

void Train::warn_of_all() {
  for (int64_t i = 0; i < info_.warnings; ++i)
    warn(
        text_from([&](char* b, size_t c, size_t* n) { return ren_model_warning(model_.get(), i, b, c, n); }));
  int64_t warnings = 0;
  check(ren_dataset_warning_count(dataset_.get(), &warnings));
  for (int64_t i = 0; i < warnings; ++i)
    warn(text_from(
        [&](char* b, size_t c, size_t* n) { return ren_dataset_warning(dataset_.get(), i, b, c, n); }));
  if (asked_batch_ > training_size_)
    warn(fmt::format("--batch {} is more than the {} pictures for training: an epoch is a single step of {}",
                     asked_batch_, training_size_, training_size_));
}

void Train::open_data() {
  dataset_ = cli::open_data(data, validation);
  classes_ = classes_of(dataset_.get());
  check(ren_dataset_size(dataset_.get(), "train", &training_size_));
  const int32_t status = ren_dataset_size(dataset_.get(), "val", &validation_size_);
  if (status != REN_ERROR_NOT_FOUND) check(status);
}

void Train::check_classes() const {
  check_class_count(
      model_, training.losses, classes_.size(),
      fmt::format("export the model with {} outputs (python -m renaissance export --classes {})",
                  classes_.size(), classes_.size()));
}

LoaderHandle Train::make_loader(const char* split, bool trains) const {
  ren_loader_options o = REN_LOADER_OPTIONS_INIT;
  o.batch = training.batch;
  o.channels = info_.channels;
  o.height = info_.height;
  o.width = info_.width;
  o.augmentation = trains ? augment.c_str() : "none";
  o.shuffle = trains ? 1 : 0;
  o.seed = training.seed;
  o.last_batch = !trains ? REN_LAST_BATCH_EXACT : drop_last ? REN_LAST_BATCH_DROP : REN_LAST_BATCH_KEEP;
  o.decode = trains && decode == "fast" ? REN_DECODE_FAST : REN_DECODE_EXACT;
  o.cache_bytes = cache_mib > 0 ? cache_mib << 20 : -1;
  loader.apply(o);
  return make<LoaderHandle>([&](ren_loader** l) { return ren_loader_create(dataset_.get(), split, &o, l); });
}

void Train::make_trainer() {
  ren_trainer_options o = REN_TRAINER_OPTIONS_INIT;
  training.apply(o);
  device.apply(o);
  normalize.apply(o);
  ren_loader_info stream = REN_LOADER_INFO_INIT;
  check(ren_loader_get_info(training_.get(), &stream));
  o.mixup_alpha = stream.mixup_alpha;  // what --augment says of whole batches
  o.cutmix_alpha = stream.cutmix_alpha;
  const int64_t rest = training_size_ % training.batch;
  if (!drop_last && rest != 0) {
    o.other_batches = &rest;
    o.other_batch_count = 1;
  }
  trainer_ = make<TrainerHandle>([&](ren_trainer** t) { return ren_trainer_create(model_.get(), &o, t); });
  if (!resume.empty())
    reading_input([&] { return check(ren_trainer_resume(trainer_.get(), training_.get(), resume.c_str())); });
}

void Train::announce() {
  const std::string name = text_from(
      [&](char* b, size_t c, size_t* n) { return ren_trainer_device_name(trainer_.get(), b, c, n); });
  const std::string chosen = text_from(
      [&](char* b, size_t c, size_t* n) { return ren_loader_augmentation(training_.get(), b, c, n); });
  ren_position position = REN_POSITION_INIT;
  check(ren_trainer_position(trainer_.get(), &position));
  output.event({{"event", "start"},
                {"model", model.path},
                {"data", data},
                {"classes", classes_},
                {"training_images", training_size_},
                {"validation_images", validation_size_},
                {"device", name},
                {"precision", device.precision},
                {"batch", training.batch},
                {"epochs", training.epochs},
                {"trained_elements", info_.trained_elements},
                {"normalize", normalize.text()},
                {"augmentation", chosen},
                {"decode", decode},
                {"steps_done", position.steps}});
  output.line(fmt::format("model     {}, {} trained values", model.path, info_.trained_elements));
  output.line(fmt::format("data      {}: {} pictures of {} classes, {}", data, training_size_,
                          classes_.size(),
                          validation_size_ > 0 ? fmt::format("{} for validation", validation_size_)
                                               : std::string("none for validation (--val names some)")));
  output.line(fmt::format(
      "input     {}x{}x{}, augmentation {}, normalisation {}", info_.channels, info_.height, info_.width,
      augment == "auto" || augment.ends_with(".json") ? fmt::format("{} ({})", augment, chosen) : augment,
      normalize.text()));
  output.line(fmt::format("device    {}, {}", name, device.precision));
  if (position.epoch >= training.epochs)
    output.line(fmt::format("resumed   after all {} epochs: nothing is left to train", training.epochs));
  else if (position.steps > 0)
    output.line(fmt::format("resumed   epoch {}, after {} steps", position.epoch + 1, position.steps));
  warn_of_all();
}

int32_t Train::observe(const ren_progress& p) {
  try {
    switch (p.phase) {
      case REN_PHASE_TRAINING:
        output.progress(fmt::format("epoch {}/{}", p.epoch + 1, p.epochs), p);
        break;
      case REN_PHASE_EVALUATING:
        output.progress("evaluating", p);
        break;
      case REN_PHASE_CHECKPOINT:
        checkpoint_is_written_ = true;
        output.event({{"event", "checkpoint"}, {"file", checkpoint}});
        break;
      case REN_PHASE_CHECKPOINT_FAILED:
        checkpoint_is_written_ = false;
        output.event({{"event", "checkpoint_failed"}, {"file", checkpoint}, {"message", p.message}});
        output.problem(fmt::format("warning: a checkpoint was not written, training goes on: {}", p.message));
        break;
      case REN_PHASE_EPOCH_DONE: {
        nlohmann::json j = {{"event", "epoch"},
                            {"epoch", p.epoch + 1},
                            {"epochs", p.epochs},
                            {"learning_rate", p.learning_rate},
                            {"images_per_second", p.images_per_second},
                            {"training", json_of(p.training)}};
        if (p.validation.samples > 0) j["validation"] = json_of(p.validation);
        loader_use_.end_epoch(training_.get(), p.training.seconds);
        j["loader"] = loader_use_.json();
        output.event(j);
        std::string text = fmt::format("epoch {:>{}}/{}  loss {:.4f}  top-1 {:>7}", p.epoch + 1,
                                       std::to_string(p.epochs).size(), p.epochs, p.training.loss,
                                       percent_text(p.training.top1));
        if (p.validation.samples > 0)
          text += fmt::format("  |  validation loss {:.4f}  top-1 {:>7}  top-5 {:>7}", p.validation.loss,
                              percent_text(p.validation.top1), percent_text(p.validation.top5));
        text +=
            fmt::format("  |  {}  {:.0f} images/s", duration_text(p.training.seconds), p.images_per_second);
        if (p.training.skipped > 0) text += fmt::format("  {} steps skipped", p.training.skipped);
        output.line(text);
        if (const std::string said = loader_use_.bottleneck_text(); !said.empty()) output.line(said);
        break;
      }
      default:
        break;
    }
    return 0;
  } catch (const std::exception&) {
    return 1;  // nothing may be thrown through the library
  }
}

void Train::fit() {
  ren_fit_options o = REN_FIT_OPTIONS_INIT;
  if (!checkpoint.empty()) o.checkpoint = checkpoint.c_str();
  o.checkpoint_every_steps = checkpoint_every;
  int32_t status;
  {
    StopScope scope(trainer_.get());
    status =
        ren_trainer_fit(trainer_.get(), training_.get(), validation_.get(), &o, &last_, on_progress, this);
  }
  output.end_progress();
  if (status == REN_ERROR_CANCELLED) {
    output.event({{"event", "stopped"}, {"message", ren_last_error_message()}, {"checkpoint", checkpoint}});
    output.finish();
    throw CliError(kInterrupted, fmt::format("{}; {}", ren_last_error_message(), way_on()));
  }
  // Only pictures are read here. What can't be written is a checkpoint, and that ends a training only when it
  // is being stopped.
  if (status == REN_ERROR_IO && !stop_was_requested()) throw CliError(kRefused, ren_last_error_message());
  check(status);
}

std::string Train::way_on() const {
  if (checkpoint.empty()) return "what it had learnt is lost (--checkpoint FILE keeps it)";
  return resume == checkpoint ? "the same command goes on from it"
                              : fmt::format("the same command with --resume {} goes on from it", checkpoint);
}

void Train::report_bad_files(const LoaderHandle& from, const char* split) {
  if (from == nullptr) return;
  ren_loader_info info = REN_LOADER_INFO_INIT;
  check(ren_loader_get_info(from.get(), &info));
  if (info.bad_files == 0 && info.damaged_files == 0) return;
  const auto report = make<ReportHandle>([&](ren_report** r) { return ren_loader_report(from.get(), r); });
  output.event(
      {{"event", "bad_files"}, {"split", split}, {"report", nlohmann::json::parse(cli::json_of(report))}});
  const std::string text = text_of(report);
  // Said even with --quiet: fewer pictures were trained on, or measured, than are there.
  output.problem(fmt::format("{} of the {} pictures:\n{}", info.bad_files + info.damaged_files, split,
                             text.substr(0, text.size() - 1)));
}

void Train::write_model(const std::string& path, bool averaged) {
  ren_export_options o = REN_EXPORT_OPTIONS_INIT;
  o.use_ema = averaged ? 1 : 0;
  o.inference_form = inference ? 1 : 0;
  const auto notes = make<ReportHandle>(
      [&](ren_report** r) { return ren_trainer_export(trainer_.get(), path.c_str(), &o, r); });
  output.line(fmt::format("wrote     {}{}", path, averaged ? " (averaged weights)" : ""));
  if (const std::string said = text_of(notes); !said.empty()) output.note(said.substr(0, said.size() - 1));
}

std::vector<std::string> Train::rescue_places(bool averaged) const {
  const char* const chosen = std::getenv("TMPDIR");
  const std::filesystem::path beside = std::filesystem::path(model.path).parent_path();
  std::vector<std::string> places;
  for (const std::string& folder : {std::string(chosen != nullptr ? chosen : ""), std::string("/tmp"),
                                    std::string("."), beside.empty() ? std::string(".") : beside.string()}) {
    if (folder.empty()) continue;
    // Nothing that lies there is replaced, nor a link followed that somebody has laid there.
    std::string place;
    std::error_code error;
    for (int n = 0; n < 100; ++n) {
      place = fmt::format("{}/renaissance-{}{}{}.onnx", folder, getpid(), averaged ? "-ema" : "",
                          n == 0 ? "" : fmt::format("-{}", n));
      if (!std::filesystem::exists(std::filesystem::symlink_status(place, error))) break;
    }
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

// What was trained is not given up with a place that went away meanwhile.
std::string Train::rescue(const std::string& path, bool averaged, const std::string& why) {
  std::string text = why;
  for (const std::string& other : rescue_places(averaged)) {
    try {
      write_model(other, averaged);
      return fmt::format("{}\nThe trained model was written to '{}' instead of '{}'", text, other, path);
    } catch (const ApiError& e) {
      text += fmt::format("\nThe trained model could not be written to '{}' either: {}", other, e.what());
    }
  }
  if (checkpoint_is_written_ && file_bytes(checkpoint) > 0)
    text += fmt::format("\n'--resume {}' with another --out writes it", checkpoint);
  return text;
}

void Train::write_models() {
  std::string problem;
  for (const bool averaged : {false, true}) {
    const std::string& path = averaged ? out_ema : out;
    if (path.empty()) continue;
    try {
      write_model(path, averaged);
    } catch (const ApiError& e) {
      problem += (problem.empty() ? "" : "\n") + rescue(path, averaged, e.what());
    }
  }
  if (!problem.empty()) throw CliError(kFailure, problem);
}

void Train::run() {
  check_options();
  check_outputs();
  model_ = model.load();
  info_ = info_of(model_);
  check_outputs();
  if (info_.trained_elements == 0)
    throw CliError(
        kRefused,
        "nothing in this model is trained: `renaissance inspect` says why, --train names what to train");
  open_data();
  check_classes();
  asked_batch_ = training.batch;
  training.batch = std::min(training.batch, training_size_);
  normalize.resolve(model_.get(), info_.channels);
  training_ = make_loader("train", true);
  if (validation_size_ > 0) validation_ = make_loader("val", false);
  make_trainer();
  announce();
  fit();
  write_models();
  report_bad_files(training_, "training");
  report_bad_files(validation_, "validation");
  nlohmann::json done = {{"event", "done"},
                         {"out", out},
                         {"training", json_of(last_.training)},
                         {"failed_checkpoints", last_.failed_checkpoints}};
  if (last_.validation.samples > 0) done["validation"] = json_of(last_.validation);
  output.event(done);
  if (last_.validation.samples > 0)
    output.result(fmt::format("top-1     {} of {} validation pictures, loss {:.4f}",
                              percent_text(last_.validation.top1), last_.validation.samples,
                              last_.validation.loss));
  output.finish();
  if (last_.validation.samples > 0 && !std::isfinite(last_.validation.loss))
    throw CliError(
        kFailure,
        fmt::format(
            "the training is done and '{}' is written, but for some picture its outputs aren't finite{}: "
            "lower the learning rate, or train longer so that running statistics settle",
            out, device.precision == "fp32" ? "" : " in " + device.precision + " (eval in fp32 tells more)"));
  if (last_.failed_checkpoints > 0)
    throw CliError(kIncomplete,
                   fmt::format("the training is done and '{}' is written, but {} checkpoints could "
                               "not be written to '{}'",
                               out, last_.failed_checkpoints, checkpoint));
}

}  // namespace

void add_train(CLI::App& app, int&) {
  auto state = std::make_shared<Train>();
  CLI::App* command = app.add_subcommand("train", "Train a model on pictures and write the trained file");
  state->model.add_path(*command);
  command
      ->add_option(
          "--data", state->data,
          "Pictures with labels: a folder, zip or tar of class folders, with train/ and val/ or "
          "without; a CSV "
          "list; tar shards; a packed .dts; a folder of MNIST's IDX or CIFAR's binary files (docs/data.md)")
      ->required()
      ->type_name("URI");
  command
      ->add_option("--val", state->validation,
                   "Pictures for validation, where the data has none or others are wanted")
      ->type_name("URI");
  command->add_option("--out", state->out, "ONNX file to write")->required()->type_name("FILE");
  command->add_option("--out-ema", state->out_ema, "ONNX file with the averaged weights (--ema)")
      ->type_name("FILE");
  command->add_flag("--inference", state->inference,
                    "Write BatchNormalization and Dropout in their inference form");
  state->training.add_recipe(*command);
  state->training.add_memory(*command);
  command
      ->add_option(
          "--augment", state->augment,
          "none; auto, which suits the model's input size; or a list with commas: flip[:P] (P = 0.5), "
          "one of pad-crop[:PIXELS] (4), random-resized-crop[:MIN[-MAX]] (shares of the area, "
          "0.08-1), center-crop[:SHORT] (pixels), resize and exact (pictures have the model's size), "
          "one of bilinear, bicubic, and torchvision's transforms, each with its numbers: vertical-flip, "
          "color-jitter:B,C,S,H, random-grayscale, gaussian-blur:SIZE, random-erasing, rand-augment:2,9, "
          "trivial-augment-wide, auto-contrast, and last, of whole batches, mixup:0.2, cutmix:1 "
          "(docs/data.md); "
          "or a .json file with a list of torchvision's transforms (default: auto)")
      ->type_name("LIST|FILE.json");
  state->normalize.add(*command);
  command->add_flag("--drop-last", state->drop_last, "Leave out an epoch's last batch when it isn't full");
  state->model.add_globs(*command);
  command->add_option("--checkpoint", state->checkpoint, "File to write after each epoch and when stopped")
      ->type_name("FILE");
  add_whole(*command, "--checkpoint-every", state->checkpoint_every, 0, std::numeric_limits<int64_t>::max(),
            "Write the checkpoint after so many steps, too; 0: after epochs only");
  command->add_option("--resume", state->resume, "Go on from a checkpoint, with the same options")
      ->type_name("FILE");
  state->device.add(*command);
  state->loader.add(*command);
  add_whole(*command, "--cache", state->cache_mib, 0, kMostCacheMib,
            "MiB of memory for decoded pictures that later epochs take again, for training and as much for "
            "validation; 0: none");
  add_choice(
      *command, "--decode", state->decode, {"exact", "fast"},
      "Pixels of training pictures: those of Pillow's decoder, or, where random-resized-crop reduces a "
      "part of a JPEG file to half or less, nearly those");
  add_output(*command, state->output);
  command->footer(
      "Ctrl-C finishes the step, writes the checkpoint (--checkpoint) and exits with 130; twice ends at "
      "once.\n"
      "Examples:\n"
      "  renaissance train net.onnx --data pictures.zip --epochs 30 --batch 64 --lr 0.05 --nesterov \\\n"
      "      --weight-decay 5e-4 --schedule cosine --augment random-resized-crop,flip --out trained.onnx\n"
      "  renaissance train net.onnx --data pictures/ --freeze 'blocks.*' --epochs 5 --lr 0.01 --out "
      "tuned.onnx\n"
      "  renaissance train net.onnx --data pictures/ --epochs 90 --checkpoint net.ckpt --out trained.onnx\n"
      "  renaissance train net.onnx --data pictures/ --epochs 90 --resume net.ckpt --checkpoint net.ckpt \\\n"
      "      --out trained.onnx                         # goes on where that was interrupted");
  command->callback([state] { state->run(); });
}

}  // namespace ren::cli
