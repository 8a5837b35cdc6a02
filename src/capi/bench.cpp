// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>

#include "capi/model.h"
#include "capi/report.h"
#include "capi/trainer.h"
#include "engine/train/step_benchmark.h"

namespace ren::capi {
namespace {

constexpr size_t kShownOperations = 15;
constexpr int32_t kMostSteps = 1'000'000, kMostWindows = 1000;  // as --steps and --windows

// 0 is the default.
int count_of(int32_t given, int fallback, int32_t most, const char* what) {
  if (given < 0 || given > most)
    fail(StatusCode::invalid_argument, "{} is {}: 0 to {} are possible", what, given, most);
  return given == 0 ? fallback : given;
}

std::string text_of(const StepBenchmark& b, const TrainerOptions& options, const StepBenchmarkOptions& how) {
  std::string text = fmt::format(
      "batch {}, {}, on {}\n{:.3f} ms a step ({:.3f} to {:.3f} in {} windows of {} steps), {:.0f} images/s\n"
      "host {:.1f} us a step; arena {} bytes ({:.2f} GiB); first step after {:.2f} s, again after {:.2f} s\n",
      options.batch, name_of(options.spec.precision), b.device, b.milliseconds, b.fastest, b.slowest,
      how.windows, how.steps, b.images_per_second, b.host_microseconds, b.arena_bytes,
      double(b.arena_bytes) / double(1 << 30), b.first_step_seconds, b.first_step_warm_seconds);
  if (b.operations.empty()) return text;
  double total = 0;
  std::map<std::string, std::pair<int, double>> kinds;
  for (const OperationTime& o : b.operations) {
    auto& [count, sum] = kinds[o.phase + " " + o.op];
    ++count;
    sum += o.milliseconds;
    total += o.milliseconds;
  }
  text += "\nby kind, measured one by one:\n";
  for (const auto& [kind, times] : kinds)
    text += fmt::format("{:10.3f} ms {:5.1f} %  {} x {}\n", times.second, 100 * times.second / total,
                        times.first, kind);
  text += "\nslowest operations:\n";
  for (size_t i = 0; i < std::min(kShownOperations, b.operations.size()); ++i) {
    const OperationTime& o = b.operations[i];
    text += fmt::format("{:10.3f} ms  {} {} {} {} ({})\n", o.milliseconds, o.phase, o.op, o.node, o.output,
                        o.engine);
  }
  return text;
}

nlohmann::json json_of(const StepBenchmark& b, const TrainerOptions& options, const StepBenchmarkOptions& how,
                       const std::string& model) {
  nlohmann::json operations = nlohmann::json::array();
  for (const OperationTime& o : b.operations)
    operations.push_back({{"phase", o.phase},
                          {"op", o.op},
                          {"node", o.node},
                          {"output", o.output},
                          {"engine", o.engine},
                          {"ms", o.milliseconds}});
  return {{"engine", fmt::format("renaissance {}", ren_version())},
          {"model", model},
          {"device", b.device},
          {"precision", name_of(options.spec.precision)},
          {"batch", options.batch},
          {"steps", how.steps},
          {"windows", how.windows},
          {"ms", b.milliseconds},
          {"ms_min", b.fastest},
          {"ms_max", b.slowest},
          {"images_per_second", b.images_per_second},
          {"host_us", b.host_microseconds},
          {"arena_bytes", b.arena_bytes},
          {"first_step_s", b.first_step_seconds},
          {"first_step_warm_s", b.first_step_warm_seconds},
          {"operations", operations}};
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" int32_t ren_bench_step(const ren_model* model, const ren_trainer_options* given,
                                  const ren_bench_options* given_how, ren_report** out) {
  return guard([&] {
    const auto& source = state_of(model, "model");
    const ren_trainer_options options = read_options(given, "ren_trainer_options");
    const ren_bench_options bench = read_options(given_how, "ren_bench_options");
    not_null(out, "report");
    StepBenchmarkOptions how;
    how.steps = count_of(bench.steps, how.steps, kMostSteps, "steps");
    how.windows = count_of(bench.windows, how.windows, kMostWindows, "windows");
    check_flag(bench.no_profile, "no_profile");
    how.profile = bench.no_profile == 0;
    const TrainerOptions chosen = trainer_options(options, *source);
    const StepBenchmark result = benchmark_step(state_for_trainer(*source), chosen, how);
    give_report(
        out, {text_of(result, chosen, how), json_text(json_of(result, chosen, how, source->path)), {}, true});
  });
}
