// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "harness.h"

namespace ren::test {

// Appends the gradient nodes of a graph's first node and remembers what they give. Every output
// that `flowing` names (all when empty) gets a gradient of random numbers.
class Gradients final : public GradientContext {
 public:
  Gradients(Case& c, std::vector<TensorId> wanted, std::vector<int> flowing = {});

  TensorId output_gradient(size_t output) override { return output_gradients.at(output); }
  bool wants(size_t input) const override;
  void set_gradient(size_t input, TensorId contribution) override;
  TensorId of(TensorId input) const;  // kNoTensor: none came

  std::vector<TensorId> output_gradients;

 private:
  std::vector<TensorId> wanted_;
  std::map<TensorId, TensorId> found_;
};

// Compares the gradients of the first node, by the references in double and by the CPU kernels,
// with central differences of its reference. `nodes`: how many there are already when gradients were
// appended before.
void expect_gradients(Case c, const std::vector<TensorId>& wanted, std::vector<int> flowing = {},
                      size_t nodes = 0);

}  // namespace ren::test
