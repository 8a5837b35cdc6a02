// SPDX-License-Identifier: Apache-2.0
#include "engine/train/step_benchmark.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/rng.h"
#include "engine/base/status.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/train/wall_clock.h"

namespace ren {
namespace {

struct SyntheticBatch {
  std::vector<std::byte> images;
  std::vector<int32_t> labels;
};

// Bytes of 0..255, or numbers between -2 and 2: as normalised pictures have them.
SyntheticBatch synthetic_batch(const Graph& step, const Shape& image, int64_t batch, DType type) {
  SyntheticBatch out;
  const size_t pixels = size_t(batch * image.h * image.w * image.c);
  out.images.resize(pixels * size_of(type));
  RandomStream random(1, 0, 0);
  for (size_t i = 0; i < pixels; ++i) {
    const float value = random.uniform(0.0f, 1.0f);
    if (type == DType::u8) {
      out.images[i] = std::byte(value * 255.0f);
    } else {
      const float centred = 4.0f * value - 2.0f;
      std::memcpy(out.images.data() + 4 * i, &centred, 4);
    }
  }
  int64_t classes = 1;
  for (const Node& node : step.nodes) {
    if (node.op != Op::cross_entropy) continue;
    classes = step.at(node.inputs[0]).shape.c;  // of the first output with a loss, as the trainer counts
    break;
  }
  out.labels.resize(size_t(step.at(step.nodes[0].inputs[1]).shape.elements()));
  for (size_t i = 0; i < out.labels.size(); ++i) out.labels[i] = int32_t(int64_t(i) % classes);
  return out;
}

const char* name_of_phase(Phase phase) {
  return phase == Phase::backward ? "backward" : phase == Phase::update ? "update" : "forward";
}

std::vector<OperationTime> operation_times(const Engine& engine) {
  std::vector<OperationTime> times;
  const Graph& graph = engine.variants()[0].graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const NodeTime& t = engine.node_times(0)[i];
    if (t.runs == 0) continue;
    const bool shaped = !node.outputs.empty() && node.outputs[0] != kNoTensor;
    times.push_back({name_of_phase(node.phase), name_of(node.op), node.name,
                     shaped ? to_string(graph.at(node.outputs[0]).shape) : "",
                     engine.choices()[0].nodes[i].engine, t.seconds * 1e3 / double(t.runs)});
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.milliseconds > b.milliseconds; });
  return times;
}

// A trainer whose two input slots are filled, and how long it took to its first result.
struct Prepared {
  Prepared(const ModelState& model, const TrainerOptions& options) {
    const WallClock watch;
    trainer = std::make_unique<Trainer>(model, options);
    const Graph& graph = trainer->engine().variants()[0].graph;
    batch = synthetic_batch(graph, model.graph.at(model.graph.input).shape, options.batch,
                            options.spec.input.image_type);
    step();
    seconds = watch.seconds();
    step();
  }
  void step() {
    const TrainerOptions& o = trainer->options();
    trainer->step(batch.images.data(), batch.labels.data(), o.batch, o.learning_rate);
  }
  std::unique_ptr<Trainer> trainer;
  SyntheticBatch batch;
  double seconds = 0;
};

void time_windows(Engine& engine, const StepBenchmarkOptions& how, StepBenchmark& result) {
  std::vector<double> windows;
  for (int w = -1; w < how.windows; ++w) {  // the first warms up
    const WallClock watch;
    for (int s = 0; s < how.steps; ++s) engine.run(0);
    engine.device().synchronize();
    if (w >= 0) windows.push_back(watch.seconds() / how.steps * 1e3);
  }
  std::sort(windows.begin(), windows.end());
  result.milliseconds = windows[windows.size() / 2];
  result.fastest = windows.front();
  result.slowest = windows.back();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Seconds of the launching thread for a step whose queue is empty.
double launching_seconds(Engine& engine) {
  constexpr int kMost = 31;
  constexpr double kMostSeconds = 1;
  std::vector<double> launches;
  for (const WallClock all; launches.size() < kMost && (launches.empty() || all.seconds() < kMostSeconds);) {
    const WallClock watch;
    engine.run(0);
    launches.push_back(watch.seconds());
    engine.device().synchronize();
  }
  return median(std::move(launches));
}

}  // namespace

StepBenchmark benchmark_step(const ModelState& model, TrainerOptions options,
                             const StepBenchmarkOptions& how) {
  if (how.steps < 1 || how.windows < 1)
    fail(StatusCode::invalid_argument, "{} windows of {} steps; at least 1 of each is needed", how.windows,
         how.steps);
  StepBenchmark result;
  options.profile = false;
  options.evaluation_batch = options.batch;
  result.first_step_seconds = Prepared(model, options).seconds;
  {
    Prepared prepared(model, options);
    Engine& engine = prepared.trainer->engine();
    result.first_step_warm_seconds = prepared.seconds;
    result.device = engine.device().name();
    result.arena_bytes = engine.plan().arena_bytes();
    time_windows(engine, how, result);
    result.host_microseconds = launching_seconds(engine) * 1e6;
  }
  result.images_per_second = double(options.batch) / result.milliseconds * 1e3;
  if (!how.profile) return result;
  options.profile = true;
  Prepared prepared(model, options);
  for (int s = 0; s < 3; ++s) prepared.trainer->engine().run(0);
  result.operations = operation_times(prepared.trainer->engine());
  return result;
}

}  // namespace ren
