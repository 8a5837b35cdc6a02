// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "engine/compile/compile.h"
#include "engine/compile/reference.h"
#include "engine/plan/memory_plan.h"
#include "small_models.h"

// Training steps behind each pass, and what they compute by the references.
namespace ren::test {

inline TrainingSpec float_images() {
  TrainingSpec spec;
  spec.input.image_type = DType::f32;
  return spec;
}

// Fills a step graph's parameters, statistics, record and batch with fixed random numbers.
inline void fill(ReferenceRun& run, const Graph& graph) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const Parameter& p : graph.parameters)
    for (double& v : run.value(p.value))
      v = p.kind == ParameterKind::norm_scale ? 1.0 + 0.2 * normal(random) : 0.3 * normal(random);
  for (size_t i = 0; i < graph.tensors.size(); ++i)  // 16-bit copies, which a range operation makes
    if (graph.tensors[i].region == Region::A)
      run.value(TensorId(i)) = run.family(graph.tensors[i].parameter, Region::W);
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    for (double& v : run.value(graph.buffers[b].value))
      v = b % 2 == 1 ? 1.0 + 0.1 * std::abs(normal(random)) : 0.1 * normal(random);
  const Node& load = graph.nodes[0];
  const auto put = [&](Scalar s, float value) {
    unsigned char bytes[4];
    std::memcpy(bytes, &value, 4);
    for (int i = 0; i < 4; ++i) run.value(load.inputs[0])[size_t(record_offset(s) + i)] = bytes[i];
  };
  const TensorId labels = load.inputs[1];
  put(Scalar::inverse_count, 1.0f / float(graph.at(labels).shape.elements()));
  put(Scalar::learning_rate, 0.1f);
  put(Scalar::momentum, 0.5f);
  for (double& v : run.value(labels)) v = double(random() % 4);
  for (double& v : run.value(load.inputs[2])) v = normal(random);
  run.value(graph.scalar(Scalar::loss_scale))[0] = 1;
}

inline double loss_of(ReferenceRun& run, const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.op == Op::cross_entropy) return run.value(node.outputs[0])[0];
  return NAN;
}

inline void run_forward_backward(ReferenceRun& run, const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.phase != Phase::update) run.run_node(node);
}

inline TrainingSpec mixed_on_gpu() {
  TrainingSpec spec = float_images();
  spec.precision = Precision::fp16;
  spec.target = target_of(DeviceKind::cuda);
  return spec;
}

// A step of three samples behind each pass, by its name.
inline std::map<std::string, Graph> graphs_after_passes(const Graph& model, const TrainingSpec& spec) {
  std::map<std::string, Graph> graphs;
  compile_variant(model, spec, {Role::step, 3},
                  [&](std::string_view pass, const Graph& graph) { graphs[std::string(pass)] = graph; });
  return graphs;
}

// Both graphs of one model, forward and backward, with the same numbers.
inline void expect_same_gradients(const Graph& before, const Graph& after, double tolerance) {
  ReferenceRun plain(before), changed(after);
  fill(plain, before);
  fill(changed, after);
  run_forward_backward(plain, before);
  run_forward_backward(changed, after);
  EXPECT_NEAR(loss_of(plain, before), loss_of(changed, after), 1e-13);  // double rounding only
  for (size_t p = 0; p < before.parameters.size(); ++p) {
    const auto& a = plain.family(int32_t(p), Region::G);
    const auto& b = changed.family(int32_t(p), Region::G);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << before.parameters[p].name;
  }
}

// A block with a projection: both normalisations of its end have the same gradient.
inline Graph block_with_projection(int64_t size = 12) {
  ModelBuilder m(3, size, 3);
  const TensorId stem = m.relu(m.conv(m.graph.input, 8, 3, 1));
  const TensorId inner = m.batch_norm(m.conv(stem, 16, 3, 2));
  const TensorId projected = m.batch_norm(m.conv(stem, 16, 1, 2));
  const TensorId joined = m.relu(m.add(inner, projected));
  const TensorId last = m.relu(m.add(m.batch_norm(m.conv(joined, 16, 3, 1)), joined));
  return m.finish(m.linear(m.global_mean(last), 4));
}

inline uint64_t feature_bytes(const Graph& graph) {
  Choices choices;
  choices.nodes.resize(graph.nodes.size());
  const Variant variant{"step", Role::step, &graph, &choices};
  PlanOptions options;
  options.compute_copies = options.first_moments = true;
  options.compute_type = DType::f16;
  options.slot_order = gradient_order(graph);
  return plan_memory(std::span(&variant, 1), options).data().roles[0].features.bytes;
}

}  // namespace ren::test
