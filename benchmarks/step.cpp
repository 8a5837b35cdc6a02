// SPDX-License-Identifier: Apache-2.0
// Times one training step on synthetic resident input and prints one JSON line.
// usage: step MODEL.onnx [--batch N] [--steps N] [--windows N] [--threads N] [--precision fp32|fp16|bf16]
//             [--device cpu|cuda] [--profile]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "engine/runtime/backends.h"
#include "engine/train/trainer.h"
#include "importer/importer.h"

namespace {

using namespace ren;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string model;
  int64_t batch = 16;
  int steps = 3, windows = 5, threads = 0;
  Precision precision = Precision::fp32;
  std::string device = "cpu";
  bool profile = false;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (key == "--batch")
      a.batch = std::stoll(value());
    else if (key == "--steps")
      a.steps = std::stoi(value());
    else if (key == "--windows")
      a.windows = std::stoi(value());
    else if (key == "--threads")
      a.threads = std::stoi(value());
    else if (key == "--device")
      a.device = value();
    else if (key == "--profile")
      a.profile = true;
    else if (key == "--precision") {
      const std::string p = value();
      a.precision = p == "fp16" ? Precision::fp16 : p == "bf16" ? Precision::bf16 : Precision::fp32;
    } else
      a.model = key;
  }
  return a;
}

void print_profile(const Engine& engine, size_t variant) {
  std::map<std::string, NodeTime> by_kind;
  std::vector<std::pair<double, std::string>> nodes;
  const Graph& graph = engine.variants()[variant].graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const NodeTime& t = engine.node_times(variant)[i];
    if (t.runs == 0) continue;
    const std::string kind = fmt::format("{} {}",
                                         node.phase == Phase::backward ? "bwd"
                                         : node.phase == Phase::update ? "upd"
                                                                       : "fwd",
                                         name_of(node.op));
    by_kind[kind].seconds += t.seconds / double(t.runs);
    by_kind[kind].runs += 1;
    const std::string out = node.outputs.empty() || node.outputs[0] == kNoTensor
                                ? ""
                                : to_string(graph.at(node.outputs[0]).shape);
    nodes.emplace_back(t.seconds / double(t.runs),
                       fmt::format("{} {} {} {}", name_of(node.op), node.name, out,
                                   engine.choices()[variant].nodes[i].engine));
  }
  double total = 0;
  for (const auto& [kind, t] : by_kind) total += t.seconds;
  for (const auto& [kind, t] : by_kind)
    std::fprintf(stderr, "%-32s %4ld nodes %9.2f ms %5.1f %%\n", kind.c_str(), long(t.runs), t.seconds * 1e3,
                 100 * t.seconds / total);
  std::sort(nodes.rbegin(), nodes.rend());
  for (size_t i = 0; i < std::min<size_t>(400, nodes.size()); ++i)
    std::fprintf(stderr, "%9.3f ms  %s\n", nodes[i].first * 1e3, nodes[i].second.c_str());
}

int run(const Arguments& a) {
  set_compute_threads(a.threads);
  const auto begin = Clock::now();
  importer::ImportedModel imported = importer::import_model(a.model);
  TrainerOptions options;
  options.batch = a.batch;
  options.learning_rate = 0.01;
  options.momentum = 0.9;
  options.weight_decay = 5e-5;
  options.spec.precision = a.precision;
  options.spec.input.image_type = DType::f32;
  options.profile = a.profile;
  options.backend = &find_backend(a.device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda);
  Trainer trainer({imported.graph, imported.parameters, imported.buffers}, options);

  const Shape image = imported.graph.at(imported.graph.input).shape;
  std::vector<float> images(size_t(a.batch * image.h * image.w * image.c));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& v : images) v = normal(random);
  const Graph& step = trainer.engine().variants()[0].graph;
  std::vector<int32_t> labels(size_t(step.at(step.nodes[0].inputs[1]).shape.elements()), 1);
  trainer.step(images.data(), labels.data(), a.batch, 0.01);
  const double first = std::chrono::duration<double>(Clock::now() - begin).count();

  trainer.step(images.data(), labels.data(), a.batch, 0.01);  // both input slots are filled now
  Engine& engine = trainer.engine();
  std::vector<double> windows;
  double launching = 1e9;  // of the host, when the queue is empty
  for (int w = 0; w < a.windows; ++w) {
    const auto start = Clock::now();
    for (int s = 0; s < a.steps; ++s) {
      engine.run(0);
      if (s == 0)
        launching = std::min(launching, std::chrono::duration<double>(Clock::now() - start).count());
    }
    engine.device().synchronize();
    windows.push_back(std::chrono::duration<double>(Clock::now() - start).count() / a.steps);
  }
  std::sort(windows.begin(), windows.end());
  if (a.profile) print_profile(trainer.engine(), 0);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double median = windows[windows.size() / 2];
  const nlohmann::json result = {{"engine", "renaissance"},
                                 {"model", a.model},
                                 {"batch", a.batch},
                                 {"device", trainer.engine().device().name()},
                                 {"precision", name_of(a.precision)},
                                 {"ms", median * 1e3},
                                 {"ms_min", windows.front() * 1e3},
                                 {"ms_max", windows.back() * 1e3},
                                 {"images_per_second", double(a.batch) / median},
                                 {"first_step_s", first},
                                 {"host_us", launching * 1e6},
                                 {"arena_bytes", trainer.engine().plan().arena_bytes()},
                                 {"peak_rss_bytes", int64_t(usage.ru_maxrss) * 1024}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "step: %s\n", e.what());
    return 1;
  }
}
