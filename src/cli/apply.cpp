// SPDX-License-Identifier: Apache-2.0
// The commands that use a trained model: eval and predict.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "cli/values.h"

namespace ren::cli {
namespace {

// A model that only runs forward, and what its pictures look like.
struct Inference {
  ModelChoice model;
  DeviceChoice device;
  NormalizeChoice normalize;
  LoaderChoice loader;
  int64_t batch = 64;
  std::string resize = "none";

  ModelHandle loaded;
  ren_model_info info = REN_MODEL_INFO_INIT;
  TrainerHandle trainer;

  void add(CLI::App& command, bool skip) {
    add_whole(command, "--batch", batch, 1, int64_t{1} << 24, "Pictures at a time");
    normalize.add(command);
    command
        .add_option(
            "--augment", resize,
            "How pictures come to the model's size. none: the short side is resized to 8/7 of it (256 "
            "for 224) and the centre cut out; a picture of just that size stays as it is. "
            "center-crop:SHORT: the short side is resized to SHORT pixels first. exact: they must have "
            "that size. With bicubic after a comma, that filter instead of bilinear (default: none)")
        ->type_name("LIST");
    device.add(command);
    loader.add(command, skip);
  }

  void load() {
    loaded = model.load();
    info = info_of(loaded);
    normalize.resolve(loaded.get(), info.channels);
  }

  void make_trainer(int64_t pictures, const std::string& losses = {}) {
    batch = std::max<int64_t>(1, std::min(batch, pictures));
    ren_trainer_options o = REN_TRAINER_OPTIONS_INIT;
    o.batch = batch;
    o.evaluation_only = 1;
    if (!losses.empty()) o.losses = losses.c_str();
    device.apply(o);
    normalize.apply(o);
    trainer = make<TrainerHandle>([&](ren_trainer** t) { return ren_trainer_create(loaded.get(), &o, t); });
  }

  LoaderHandle make_loader(const DatasetHandle& dataset, const std::string& split) const {
    ren_loader_options o = REN_LOADER_OPTIONS_INIT;
    o.batch = batch;
    o.channels = info.channels;
    o.height = info.height;
    o.width = info.width;
    o.augmentation = resize.c_str();
    o.last_batch = REN_LAST_BATCH_EXACT;
    o.cache_bytes = -1;
    loader.apply(o);
    return make<LoaderHandle>(
        [&](ren_loader** l) { return ren_loader_create(dataset.get(), split.c_str(), &o, l); });
  }

  void tell_normalization(Output& output) const {
    if (normalize.by_default)
      output.note(
          fmt::format("the model names no normalisation: '{}' is assumed (--normalize)", normalize.name));
  }
};

// "a, b, c and 7 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  if (names.size() <= kShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kShown, ", "),
                     names.size() - kShown);
}

std::vector<std::string> lines_of(const std::string& path, const char* option) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw CliError(kRefused,
                   fmt::format("{} '{}' is {}, not a text file", option, path,
                               std::filesystem::is_directory(status) ? "a folder" : "a device or pipe"));
  std::ifstream file(path);
  if (!file)
    throw CliError(kRefused, fmt::format("{} '{}' can't be read: {}", option, path, std::strerror(errno)));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// ---- eval --------------------------------------------------------------------------------

struct Eval {
  Inference inference;
  std::string data, validation, split, losses;
  Output output;

  void run();

 private:
  void check_classes(const DatasetHandle& dataset);
  std::string choose_split(const DatasetHandle& dataset, int64_t& pictures) const;
  static int32_t on_progress(void* user, const ren_progress* p) {
    try {
      static_cast<Eval*>(user)->output.progress("evaluating", *p);
      return 0;
    } catch (const std::exception&) {
      return 1;
    }
  }
};

std::string Eval::choose_split(const DatasetHandle& dataset, int64_t& pictures) const {
  if (!split.empty()) {
    check(ren_dataset_size(dataset.get(), split.c_str(), &pictures));
    return split;
  }
  for (const char* name : {"val", "all"}) {
    const int32_t status = ren_dataset_size(dataset.get(), name, &pictures);
    if (status == REN_OK) return name;
    if (status != REN_ERROR_NOT_FOUND) check(status);
  }
  throw CliError(
      kRefused, fmt::format("'{}' has no val/ or test/ pictures; --split names others, --val a place", data));
}

// Whether the data's labels mean what the model's outputs mean.
void Eval::check_classes(const DatasetHandle& dataset) {
  const auto given = classes_of(dataset.get());
  const auto known = classes_in(inference.loaded.get());
  check_class_count(inference.loaded, losses, given.size(),
                    known
                        ? fmt::format("measure it on the classes that it was trained on: {}", some_of(*known))
                        : "measure it on data with the classes that it was trained on, a folder for each");
  if (!known || known->size() != given.size()) return;
  const auto differs = std::mismatch(known->begin(), known->end(), given.begin());
  if (differs.first != known->end())
    output.note(
        fmt::format("warning: class {} is '{}' in the data and '{}' in the model: labels may mean "
                    "something else",
                    differs.first - known->begin(), *differs.second, *differs.first));
}

void Eval::run() {
  inference.load();
  const DatasetHandle dataset = open_data(data, validation);
  check_classes(dataset);
  int64_t pictures = 0;
  const std::string chosen = choose_split(dataset, pictures);
  inference.make_trainer(pictures, losses);
  const LoaderHandle loader = inference.make_loader(dataset, chosen);
  inference.tell_normalization(output);
  ren_metrics m{};
  int32_t status;
  {
    StopScope scope(inference.trainer.get());
    status = ren_trainer_evaluate(inference.trainer.get(), loader.get(), &m, on_progress, this);
  }
  output.end_progress();
  reading_input([&] { return check(status); });  // nothing else is read, and nothing is written
  ren_loader_info info = REN_LOADER_INFO_INIT;
  check(ren_loader_get_info(loader.get(), &info));
  if (info.bad_files > 0) {
    const auto report =
        make<ReportHandle>([&](ren_report** r) { return ren_loader_report(loader.get(), r); });
    output.note(text_of(report));
  }
  output.event({{"event", "eval"},
                {"model", inference.model.path},
                {"data", data},
                {"split", chosen},
                {"samples", m.samples},
                {"loss", m.loss},
                {"top1", m.top1},
                {"top5", m.top5},
                {"seconds", m.seconds},
                {"bad_files", info.bad_files}});
  output.result(fmt::format("top-1 {}  top-5 {}  loss {:.4f}  ({} pictures of '{}', {})",
                            percent_text(m.top1), percent_text(m.top5), m.loss, m.samples, chosen,
                            duration_text(m.seconds)));
  output.finish();
}

// ---- predict -----------------------------------------------------------------------------

struct Predict {
  Inference inference;
  std::vector<std::string> pictures;
  std::string classes_file;
  int64_t top = 1;
  Output output;

  void run();

 private:
  std::vector<std::string> class_names(int64_t count) const;
  void predict_place(const DatasetHandle& dataset, const std::vector<std::string>& names);
  void print(const std::string& path, const float* logits, const std::vector<std::string>& names);
  void refuse(const std::string& path);

  int64_t not_finite_ = 0;  // pictures without an answer
};

std::vector<std::string> Predict::class_names(int64_t count) const {
  std::vector<std::string> names;
  if (!classes_file.empty()) {
    for (std::string line : lines_of(classes_file, "--classes")) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty()) names.push_back(line);
    }
    if (int64_t(names.size()) != count)
      throw CliError(kRefused,
                     fmt::format("--classes '{}' has {} lines with a name, the model has {} classes",
                                 classes_file, names.size(), count));
    return names;
  }
  if (const auto found = classes_in(inference.loaded.get()); found && int64_t(found->size()) == count)
    return *found;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

void Predict::print(const std::string& path, const float* logits, const std::vector<std::string>& names) {
  if (!std::all_of(logits, logits + names.size(), [](float v) { return std::isfinite(v); }))
    return refuse(path);
  const size_t count = names.size();
  const double most = *std::max_element(logits, logits + count);
  std::vector<double> p(count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += p[i] = std::exp(double(logits[i]) - most);
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  const size_t shown = std::min(count, size_t(top));
  std::partial_sort(order.begin(), order.begin() + int64_t(shown), order.end(),
                    [&](size_t a, size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  nlohmann::json list = nlohmann::json::array();
  std::string text = path;
  for (size_t k = 0; k < shown; ++k) {
    const double probability = p[order[k]] / sum;
    list.push_back({{"class", names[order[k]]}, {"index", order[k]}, {"probability", probability}});
    text += fmt::format("  {} {:.2f} %", names[order[k]], 100 * probability);
  }
  output.event({{"event", "prediction"}, {"path", path}, {"predictions", list}});
  output.result(text);
}

void Predict::refuse(const std::string& path) {
  const char* const text =
      "the model's output is not finite: its weights have diverged, or the precision is too small";
  ++not_finite_;
  output.event({{"event", "prediction"}, {"path", path}, {"error", text}});
  output.problem(fmt::format("error: {}: {}", path, text));
}

void Predict::predict_place(const DatasetHandle& dataset, const std::vector<std::string>& names) {
  const LoaderHandle loader = inference.make_loader(dataset, "all");
  check(ren_loader_start_epoch(loader.get(), 0, 0));
  std::vector<float> logits;
  int64_t first = 0;
  ren_batch batch = REN_BATCH_INIT;
  while (reading_input([&] { return check(ren_loader_next(loader.get(), &batch)); }) == REN_OK) {
    logits.resize(size_t(batch.count) * names.size());
    float* const outputs[] = {logits.data()};
    const size_t counts[] = {logits.size()};
    check(ren_trainer_predict(inference.trainer.get(), &batch, outputs, counts, 1));
    for (int64_t i = 0; i < batch.count; ++i) {
      const std::string path = text_from([&](char* b, size_t c, size_t* n) {
        return ren_dataset_path(dataset.get(), "all", first + i, b, c, n);
      });
      print(path, logits.data() + size_t(i) * names.size(), names);
    }
    if (output.failed()) break;
    first += batch.count;
  }
}

void Predict::run() {
  inference.load();
  ren_output_info o = REN_OUTPUT_INFO_INIT;
  check(ren_model_output_info(inference.loaded.get(), 0, &o));
  if (o.height != 1 || o.width != 1)
    throw CliError(kRefused, fmt::format("output '{}' is a map of {}x{}, not class scores of a picture",
                                         output_name(inference.loaded, 0), o.height, o.width));
  const auto names = class_names(o.channels);
  std::vector<DatasetHandle> places;
  int64_t total = 0;
  for (const std::string& place : pictures) {
    places.push_back(reading_input([&] {
      return make<DatasetHandle>(
          [&](ren_dataset** d) { return ren_dataset_open_pictures(place.c_str(), d); });
    }));
    int64_t count = 0;
    check(ren_dataset_size(places.back().get(), "all", &count));
    total += count;
  }
  inference.make_trainer(total);
  inference.tell_normalization(output);
  for (const DatasetHandle& place : places) predict_place(place, names);
  output.finish();
  if (not_finite_ > 0)
    throw CliError(kFailure,
                   fmt::format("{} of {} pictures have no prediction: the model's output is not finite",
                               not_finite_, total));
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  auto state = std::make_shared<Eval>();
  CLI::App* command = app.add_subcommand("eval", "Measure a model's accuracy on labelled pictures");
  state->inference.model.add_path(*command);
  command
      ->add_option(
          "--data", state->data,
          "Pictures with labels: a folder, zip or tar of class folders, with train/ and val/ or test/ above "
          "them or without; a CSV list; tar shards; a packed .dts; a folder of MNIST's IDX or CIFAR's binary files "
          "(docs/data.md)")
      ->required()
      ->type_name("URI");
  command
      ->add_option("--val", state->validation,
                   "Pictures with labels to take instead of what --data has for validation")
      ->type_name("URI");
  command
      ->add_option("--split", state->split,
                   "Which pictures of --data: train, val, test or all; default: val or test, where there is "
                   "one, else all")
      ->type_name("NAME");
  command
      ->add_option("--loss", state->losses,
                   "Outputs that count and their weights, as in training, e.g. logits:1,aux:0.3; default: "
                   "the first output")
      ->type_name("OUTPUT[:WEIGHT],...");
  state->inference.add(*command, true);
  add_output(*command, state->output);
  command->footer(
      "Examples:\n  renaissance eval trained.onnx --data pictures/\n  renaissance eval trained.onnx --data "
      "pictures.zip --split train --json");
  command->callback([state] { state->run(); });
}

void add_predict(CLI::App& app, int&) {
  auto state = std::make_shared<Predict>();
  CLI::App* command = app.add_subcommand("predict", "Name the class of pictures");
  state->inference.model.add_path(*command);
  command
      ->add_option("PICTURES", state->pictures,
                   "JPEG or PNG files; folders, archives and lists of them; IDX and CIFAR files")
      ->required();
  add_whole(*command, "--top", state->top, 1, std::numeric_limits<int64_t>::max(),
            "How many classes to name for each picture, the likeliest first");
  command
      ->add_option("--classes", state->classes_file,
                   "Text file with a class name on each line, in the order of the model's outputs; default: "
                   "the names in the model's metadata, else numbers")
      ->type_name("FILE");
  state->inference.add(*command, false);
  add_output(*command, state->output);
  command->footer(
      "Examples:\n  renaissance predict trained.onnx cat.jpg\n  renaissance predict trained.onnx pictures/ "
      "--top 3 --json");
  command->callback([state] { state->run(); });
}

}  // namespace ren::cli
