// SPDX-License-Identifier: Apache-2.0
#include "gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace ren::test {

Gradients::Gradients(Case& c, std::vector<TensorId> wanted, std::vector<int> flowing)
    : GradientContext(c.builder, c.graph.nodes.at(0)), wanted_(std::move(wanted)) {
  for (size_t k = 0; k < node().outputs.size(); ++k) {
    const Tensor y = c.graph.at(node().outputs[k]);
    const bool flows = flowing.empty() || std::count(flowing.begin(), flowing.end(), int(k)) > 0;
    output_gradients.push_back(flows ? c.input("dy", y.shape, y.dtype, 100 + k) : kNoTensor);
  }
  definition_of(node().op).gradient(*this);
}

bool Gradients::wants(size_t input) const {
  return std::count(wanted_.begin(), wanted_.end(), node().inputs[input]) > 0;
}

void Gradients::set_gradient(size_t input, TensorId contribution) {
  const TensorId id = node().inputs[input];
  EXPECT_TRUE(wants(input));
  EXPECT_EQ(found_.count(id), 0u) << "two gradients for one operand";
  EXPECT_EQ(graph().at(contribution).shape, graph().at(id).shape);
  found_[id] = contribution;
}

TensorId Gradients::of(TensorId input) const {
  const auto found = found_.find(input);
  return found == found_.end() ? kNoTensor : found->second;
}

namespace {

// sum over outputs and elements of dy * y, by the reference of the first node alone.
double loss(const Case& c, const Gradients& g) {
  Case forward;
  forward.graph = c.graph;
  forward.graph.nodes.resize(1);
  forward.given = c.given;
  const auto values = forward.run_reference();
  double sum = 0;
  for (size_t k = 0; k < g.output_gradients.size(); ++k) {
    if (g.output_gradients[k] == kNoTensor) continue;
    const Values &y = values.at(c.graph.nodes[0].outputs[k]), &dy = values.at(g.output_gradients[k]);
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  }
  return sum;
}

}  // namespace

void expect_gradients(Case c, const std::vector<TensorId>& wanted, std::vector<int> flowing, size_t nodes) {
  if (nodes > 0) c.graph.nodes.resize(nodes);
  Case copy;
  copy.graph = c.graph;
  copy.given = c.given;
  const Gradients g(copy, wanted, std::move(flowing));
  const auto reference = copy.run_reference(), cpu = copy.run_cpu();
  for (TensorId x : wanted) {
    ASSERT_NE(g.of(x), kNoTensor) << copy.graph.at(x).name;
    const Values &exact = reference.at(g.of(x)), &fast = cpu.at(g.of(x));
    double largest = 0;
    for (double v : exact) largest = std::max(largest, std::fabs(v));
    // FP32 arithmetic on numbers of that size, a few hundred of them summed.
    expect_close(fast, exact, 1e-5, largest, "gradient of " + copy.graph.at(x).name + " on the CPU");
    for (size_t i = 0; i < exact.size(); i += 1 + exact.size() / 40) {  // about forty of them
      const double h = 1e-5, at = copy.given.at(x)[i];
      Case shifted;
      shifted.graph = copy.graph;
      shifted.given = copy.given;
      shifted.given.at(x)[i] = at + h;
      const double above = loss(shifted, g);
      shifted.given.at(x)[i] = at - h;
      const double below = loss(shifted, g);
      // Central differences: the error of h^2, and cancellation in a sum of this many terms.
      EXPECT_NEAR(exact[i], (above - below) / (2 * h), 1e-6 * (1 + largest))
          << "gradient of " << copy.graph.at(x).name << " element " << i;
    }
  }
}

}  // namespace ren::test
