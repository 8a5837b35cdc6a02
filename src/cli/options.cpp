// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace ren::cli {
namespace {

constexpr const char* kNormalizeKey = "renaissance.normalize";

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& t : texts) out.push_back(t.c_str());
  return out;
}

int32_t position_in(const std::string& text, std::initializer_list<const char*> names) {
  int32_t i = 0;
  for (const char* name : names) {
    if (text == name) return i;
    ++i;
  }
  return -1;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void ModelChoice::add_path(CLI::App& command) {
  command.add_option("MODEL", path, "ONNX file, as PyTorch exported it")->required();
}

void ModelChoice::add_globs(CLI::App& command) {
  command
      .add_option("--train", train, "Train initializers whose name matches GLOB (* and ?); may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command
      .add_option("--freeze", freeze,
                  "Keep initializers whose name matches GLOB as they are; may be repeated")
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
  try {
    return make<ModelHandle>([&](ren_model** out) { return ren_model_load(path.c_str(), &options, out); });
  } catch (const ApiError& e) {
    // An input that can't be read is refused input, too.
    if (e.status() == REN_ERROR_IO) throw CliError(kRefused, e.what());
    throw;
  }
}

void DeviceChoice::add(CLI::App& command) {
  command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", precision, "fp32, or mixed precision: fp16, bf16")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads that compute on the CPU; 0: one a processor")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void DeviceChoice::apply(ren_trainer_options& options) const {
  check(ren_set_compute_threads(threads));
  options.device = device.c_str();
  options.precision = position_in(precision, {"fp32", "fp16", "bf16"});
}

void NormalizeChoice::add(CLI::App& command) {
  auto* named =
      command
          .add_option("--normalize", name,
                      "imagenet, cifar10, half or none; default: what the model's metadata says, else "
                      "imagenet (one channel: half)")
          ->check(CLI::IsMember({"imagenet", "cifar10", "half", "none"}));
  auto* means =
      command.add_option("--mean", mean, "Mean of each channel, of pixels in 0..1, e.g. 0.5,0.5,0.5")
          ->delimiter(',')
          ->excludes(named);
  auto* deviations =
      command.add_option("--std", std, "Standard deviation of each channel")->delimiter(',')->excludes(named);
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

std::string NormalizeChoice::metadata(int64_t channels) const {
  std::vector<double> m, s;
  if (name.empty()) {
    for (const float v : mean)
      m.push_back(std::stod(fmt::format("{}", v)));  // 0.485, not 0.48500001430511475
    for (const float v : std) s.push_back(std::stod(fmt::format("{}", v)));
  } else if (name == "imagenet") {
    m = {0.485, 0.456, 0.406};
    s = {0.229, 0.224, 0.225};
  } else if (name == "cifar10") {
    m = {0.4914, 0.4822, 0.4465};
    s = {0.2470, 0.2435, 0.2616};
  } else {
    m.assign(size_t(channels), name == "half" ? 0.5 : 0.0);
    s.assign(size_t(channels), name == "half" ? 0.5 : 1.0);
  }
  m.resize(size_t(std::max<int64_t>(channels, 1)), m.front());
  s.resize(size_t(std::max<int64_t>(channels, 1)), s.front());
  return nlohmann::json({{"mean", m}, {"std", s}}).dump();
}

std::string NormalizeChoice::text() const {
  if (!name.empty()) return name;
  return fmt::format("mean {} std {}{}", fmt::join(mean, ","), fmt::join(std, ","),
                     from_model ? " (from the model)" : "");
}

void LoaderChoice::add(CLI::App& command, bool skip) {
  const std::vector<std::string> policies = skip ? std::vector<std::string>{"fail", "skip", "replace"}
                                                 : std::vector<std::string>{"fail", "replace"};
  command
      .add_option(
          "--bad-files", bad_files,
          fmt::format("What to do with a picture that can't be decoded: {}", fmt::join(policies, ", ")))
      ->check(CLI::IsMember(policies))
      ->capture_default_str();
  command.add_option("--loader-threads", threads, "Threads that decode pictures; 0: one a processor")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void LoaderChoice::apply(ren_loader_options& options) const {
  options.bad_files = position_in(bad_files, {"fail", "skip", "replace"});
  options.threads = threads;
}

void TrainingChoice::add_memory(CLI::App& command) {
  command.add_option("--batch", batch, "Pictures a step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("--optimizer", optimizer, "sgd or lars")
      ->check(CLI::IsMember({"sgd", "lars"}))
      ->capture_default_str();
  command.add_option("--momentum", momentum, "0: none")
      ->check(CLI::Range(0.0, 0.99999))
      ->capture_default_str();
  command.add_option("--ema", ema, "Keep an average of the weights with this decay, e.g. 0.999")
      ->check(CLI::Range(0.0, 0.9999999))
      ->type_name("DECAY");
  command
      .add_option("--loss", losses,
                  "Outputs with a cross entropy and their weights, e.g. logits:1,aux:0.3; default: the first")
      ->type_name("OUTPUT[:WEIGHT],...");
}

void TrainingChoice::add_recipe(CLI::App& command) {
  command.add_option("--epochs", epochs, "Times through the data")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command.add_option("--lr", lr, "Learning rate, at its highest")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--nesterov", nesterov, "Nesterov's momentum, as PyTorch has it");
  command.add_option("--weight-decay", weight_decay, "L2, added to the gradient")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_flag("--decay-weights-only", decay_weights_only,
                   "No weight decay on biases and normalisations");
  command.add_option("--schedule", schedule, "constant, step or cosine")
      ->check(CLI::IsMember({"constant", "step", "cosine"}))
      ->capture_default_str();
  command.add_option("--warmup-epochs", warmup_epochs, "Epochs of linear rise at the beginning")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--final-lr", final_lr, "Where the cosine ends")->check(CLI::NonNegativeNumber);
  command.add_option("--step-epochs", step_epochs, "Epochs between two reductions of the step schedule")
      ->check(CLI::PositiveNumber);
  command.add_option("--gamma", gamma, "Factor of a reduction")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--label-smoothing", label_smoothing, "As PyTorch's cross_entropy has it")
      ->check(CLI::Range(0.0, 0.99));
  command.add_option("--seed", seed, "Of shuffling and augmentation")->capture_default_str();
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

std::vector<std::string> classes_of(const ren_dataset* dataset) {
  int64_t count = 0;
  check(ren_dataset_class_count(dataset, &count));
  std::vector<std::string> classes;
  for (int64_t i = 0; i < count; ++i)
    classes.push_back(
        text_from([&](char* b, size_t c, size_t* n) { return ren_dataset_class_name(dataset, i, b, c, n); }));
  return classes;
}

void add_output(CLI::App& command, Output& output, bool quiet) {
  command.add_flag("--json", output.json, "One JSON object a line, for machines");
  if (quiet) command.add_flag("--quiet", output.quiet, "Results and errors only");
}

uint64_t file_bytes(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? uint64_t(status.st_size) : 0;
}

void check_writable(const std::string& path, const char* option, uint64_t bytes) {
  const auto refuse = [&](const std::string& why) {
    throw CliError(kRefused, fmt::format("{} '{}' can't be written: {}", option, path, why));
  };
  struct stat status {};
  if (path.empty() || path.back() == '/') refuse("it names no file");
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    refuse("something that is no file has that name");
  const std::string folder = folder_of(path);
  if (stat(folder.c_str(), &status) != 0)
    refuse(fmt::format("folder '{}': {}", folder, std::strerror(errno)));
  if (!S_ISDIR(status.st_mode)) refuse(fmt::format("'{}' is no folder", folder));
  // Asking is not enough (a read-only file system, quotas): a file is made and removed.
  const std::string probe = fmt::format("{}/.renaissance-probe-{}", folder, getpid());
  const int descriptor = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) refuse(std::strerror(errno));
  close(descriptor);
  unlink(probe.c_str());
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) == 0 && uint64_t(room.f_bavail) * room.f_frsize < bytes)
    refuse(fmt::format("it takes {}, {} are free", bytes_text(double(bytes)),
                       bytes_text(double(room.f_bavail) * double(room.f_frsize))));
}

void write_text_file(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int problem = errno;
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed)
    throw CliError(kFailure,
                   fmt::format("'{}' can't be written: {}", path, std::strerror(written ? errno : problem)));
}

}  // namespace ren::cli
