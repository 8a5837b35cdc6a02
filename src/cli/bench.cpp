// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/values.h"

namespace ren::cli {
namespace {

// An empty cache of kernels and measured choices for the time of a run.
class ColdCache {
 public:
  ColdCache() {
    std::string pattern = (std::filesystem::temp_directory_path() / "renaissance-cold-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw CliError(kFailure, "no folder for an empty cache can be made in the temporary folder");
    folder_ = pattern;
    setenv("RENAISSANCE_CACHE", pattern.c_str(), 1);
  }
  ~ColdCache() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ColdCache(const ColdCache&) = delete;
  ColdCache& operator=(const ColdCache&) = delete;

 private:
  std::filesystem::path folder_;
};

struct BenchStep {
  ModelChoice model;
  DeviceChoice device;
  TrainingChoice training;
  int steps = 20, windows = 5;
  bool cold = false, no_profile = false;
  std::string images = "u8";
  Output output;

  void run() {
    const std::optional<ColdCache> cache = cold ? std::make_optional<ColdCache>() : std::nullopt;
    const ModelHandle loaded = model.load();
    ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
    training.apply(options);
    device.apply(options);
    options.image_type = images == "u8" ? REN_IMAGE_UINT8 : REN_IMAGE_FLOAT32;
    ren_bench_options bench = REN_BENCH_OPTIONS_INIT;
    bench.steps = steps;
    bench.windows = windows;
    bench.no_profile = no_profile ? 1 : 0;
    const auto report = make<ReportHandle>(
        [&](ren_report** out) { return ren_bench_step(loaded.get(), &options, &bench, out); });
    output.raw_json(json_of(report));
    output.result(text_of(report));
    output.finish();
  }
};

}  // namespace

void add_bench(CLI::App& app, int&) {
  CLI::App* bench = app.add_subcommand("bench", "Measure how fast this machine trains a model");
  bench->require_subcommand(1);
  auto state = std::make_shared<BenchStep>();
  CLI::App* command = bench->add_subcommand(
      "step", "Time one training step on synthetic pictures that lie on the device already");
  state->model.add_path(*command);
  state->training.add_memory(*command);
  state->device.add(*command);
  add_whole(*command, "--steps", state->steps, 1, 1'000'000, "Steps a window");
  add_whole(*command, "--windows", state->windows, 1, 1000, "Windows; their median is the result");
  add_choice(*command, "--images", state->images, {"u8", "f32"},
             "What a picture comes as: bytes, as from files, or numbers of 32 bits");
  command->add_flag(
      "--cold", state->cold,
      "With an empty cache of kernels and measured choices, so that the first step shows what a "
      "new machine takes");
  command->add_flag("--no-profile", state->no_profile, "Don't time the single operations");
  add_output(*command, state->output, false);
  command->footer(
      "Examples:\n  renaissance bench step net.onnx --batch 16\n"
      "  renaissance bench step net.onnx --batch 256 --device cuda --precision fp16 --json");
  command->callback([state] { state->run(); });
}

}  // namespace ren::cli
