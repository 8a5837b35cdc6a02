// SPDX-License-Identifier: Apache-2.0
// Whatever a model is made of, the passes for GPUs and for mixed precision leave what a step computes as it
// is. REN_RANDOM_MODELS="first count" takes other seeds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "engine/base/status.h"
#include "random_model.h"
#include "steps.h"

namespace ren::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kModels = 12;
#else
constexpr uint64_t kModels = 80;
#endif

struct Seeds {
  uint64_t first = 0, count = kModels;
};
Seeds seeds() {
  Seeds s;
  if (const char* text = std::getenv("REN_RANDOM_MODELS")) std::istringstream(text) >> s.first >> s.count;
  return s;
}

TrainingSpec spec_of(const Graph& model, DeviceKind device, Precision precision) {
  TrainingSpec spec = float_images();
  spec.target = target_of(device);
  spec.precision = precision;
  spec.loss.outputs = {{"logits", 1.0f}};
  for (const GraphOutput& o : model.outputs)
    if (o.name == "auxiliary") spec.loss.outputs.push_back({o.name, 0.4f});
  return spec;
}

// What a program leaves behind, by name.
using Outcome = std::map<std::string, std::vector<double>>;

Outcome outcome_of(const Graph& graph, bool trains) {
  ReferenceRun run(graph);
  fill(run, graph);
  run_forward_backward(run, graph);
  Outcome outcome;
  for (const Node& node : graph.nodes)
    if (node.op == Op::cross_entropy) outcome[node.name] = run.value(node.outputs[0]);
  for (const GraphOutput& o : graph.outputs) outcome["output " + o.name] = run.value(o.value);
  for (const Buffer& b : graph.buffers) outcome["statistic " + b.name] = run.value(b.value);
  for (size_t p = 0; trains && p < graph.parameters.size(); ++p)
    if (graph.parameters[p].trainable)
      outcome["gradient " + graph.parameters[p].name] = run.family(int32_t(p), Region::G);
  return outcome;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

// Both compute in double, sums in other orders and a variance by other sums, so they differ by 1e-16 of the
// terms, which a normalisation of a few values magnifies by up to 1 / sqrt(epsilon), some three hundred, and
// several of them in a row by more; of what cancels in a gradient of nearly zero less is left. A pass that
// does something wrong is off by far more.
constexpr double kBound = 1e-7;

std::string difference(const Outcome& expected, const Outcome& actual) {
  double gradients = 0;
  for (const auto& [name, values] : expected)
    if (name.rfind("gradient", 0) == 0) gradients = std::max(gradients, largest(values));
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) return name + " is missing";
    if (found->second.size() != values.size()) return name + " has another size";
    const double scale = largest(values) + (name.rfind("gradient", 0) == 0 ? gradients : 1);
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(values[i] - found->second[i]) <= kBound * scale))
        return fmt::format("{}[{}] is {} instead of {}", name, i, found->second[i], values[i]);
  }
  return expected.size() == actual.size() ? "" : "there is more";
}

// The first pass behind which the step's outcome is another.
std::string culprit(const Graph& model, const TrainingSpec& spec, int64_t batch, const Outcome& expected) {
  std::string name;
  bool differentiated = false;
  compile_variant(model, spec, {Role::step, batch}, [&](std::string_view pass, const Graph& graph) {
    differentiated |= pass == "autodiff";
    if (differentiated && name.empty() && !difference(expected, outcome_of(graph, true)).empty()) name = pass;
  });
  return name.empty() ? "none" : name;
}

std::string wrong_shape(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::update) continue;
    std::vector<TensorType> inputs;
    for (const TensorId id : node.inputs)
      inputs.push_back(id == kNoTensor ? TensorType() : graph.at(id).type());
    const auto types = definition_of(node.op).infer(node, inputs);
    // The gradient of a weight stays FP32, and the product that makes it writes what the tensor is.
    const bool any_type = node.op == Op::gemm && node.as<GemmAttributes>().has_out;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoTensor) continue;
      const TensorType is = graph.at(node.outputs[k]).type(), inferred = types.at(k);
      if (is.shape != inferred.shape || (!any_type && is.dtype != inferred.dtype))
        return fmt::format("{} '{}': output {} is {} {}, and inferred {} {}", name_of(node.op), node.name, k,
                           name_of(is.dtype), to_string(is.shape), name_of(inferred.dtype),
                           to_string(inferred.shape));
    }
  }
  return "";
}

// All programs of one training, as a trainer makes them.
struct Programs {
  Programs(const RandomModel& model, const TrainingSpec& s) : spec(s) {
    for (const int64_t batch : model.batches) add(model, Role::step, batch);
    add(model, Role::accumulate, model.batches[0]);
    add(model, Role::evaluate, 2);
    add(model, Role::evaluate, 1);
    add(model, Role::predict, 1);
    add(model, Role::predict, 2);
  }
  void add(const RandomModel& model, Role role, int64_t batch) {
    graphs.push_back(compile_variant(model.graph, spec, {role, batch}));
    roles.push_back(role);
  }

  // Throws when variants differ in more than sizes, or bytes are shared that mustn't.
  void check_plan() const {
    std::vector<Choices> choices(graphs.size());
    std::vector<Variant> variants;
    for (size_t i = 0; i < graphs.size(); ++i) {
      choices[i].nodes.resize(graphs[i].nodes.size());
      variants.push_back(
          {fmt::format("{}@{}", name_of(roles[i]), graphs[i].batch()), roles[i], &graphs[i], &choices[i]});
    }
    PlanOptions options;
    options.compute_copies = is_mixed(spec.precision);
    options.compute_type = compute_type(spec.precision);
    options.first_moments = true;
    options.slot_order = gradient_order(graphs[0]);
    validate(plan_memory(variants, options), variants, options);
  }

  const TrainingSpec spec;
  std::vector<Graph> graphs;
  std::vector<Role> roles;
};

// What is wrong with the programs of one target; `expected` are the outcomes of plain ones.
std::string problem_of(const RandomModel& model, const TrainingSpec& spec, std::vector<Outcome>& expected) {
  try {
    const Programs programs(model, spec);
    for (const Graph& graph : programs.graphs)
      if (const std::string wrong = wrong_shape(graph); !wrong.empty()) return wrong;
    programs.check_plan();
    for (size_t i = 0; i < programs.graphs.size() && programs.roles[i] != Role::predict; ++i) {
      if (programs.roles[i] == Role::accumulate) continue;  // a step without the update
      const bool trains = programs.roles[i] == Role::step;
      Outcome outcome = outcome_of(programs.graphs[i], trains);
      if (expected.size() <= i) expected.resize(i + 1);
      if (expected[i].empty()) expected[i] = outcome;
      const std::string wrong = difference(expected[i], outcome);
      if (wrong.empty()) continue;
      const int64_t batch = programs.graphs[i].batch();
      return fmt::format("{}@{}: {}, behind {}", name_of(programs.roles[i]), batch, wrong,
                         trains ? culprit(model.graph, spec, batch, expected[i]) : "?");
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// Adds to the count of each pass that changes this model.
void count_changes(const RandomModel& model, const TrainingSpec& spec,
                   std::map<std::string, uint64_t>& changes) {
  std::string before;
  compile_variant(model.graph, spec, {Role::step, model.batches[0]},
                  [&](std::string_view pass, const Graph& graph) {
                    std::string text = to_string(graph);
                    changes[std::string(pass)] += text != before;
                    before = std::move(text);
                  });
}

// The models are about every pass that only some of them change.
TEST(RandomGraphs, EveryPassHasSomethingToDo) {
  std::map<std::string, uint64_t> changes;
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    const RandomModel model = random_model(seed);
    count_changes(model, spec_of(model.graph, DeviceKind::cuda, Precision::fp16), changes);
  }
  for (const auto& [pass, count] : changes) {
    RecordProperty(pass, int(count));
    if (pass != "infer_mode" && pass != "rebatch") {
      EXPECT_GE(count, kModels / 30) << pass;
    }
  }
}

TEST(RandomGraphs, EveryTargetAndPrecisionComputesTheSame) {
  const Seeds range = seeds();
  for (uint64_t seed = range.first; seed < range.first + range.count; ++seed) {
    const RandomModel model = random_model(seed);
    std::vector<Outcome> expected;
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
      for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
        // BF16 differs from FP16 by the type's name alone.
        if (precision == Precision::bf16 && seed % 5 != 0) continue;
        const TrainingSpec spec = spec_of(model.graph, device, precision);
        EXPECT_EQ(problem_of(model, spec, expected), "")
            << "seed " << seed << ", " << (device == DeviceKind::cuda ? "GPU" : "CPU") << " in "
            << name_of(precision);
      }
  }
}

}  // namespace
}  // namespace ren::test
