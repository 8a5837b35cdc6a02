// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/ops/op.h"

namespace ren::test {

// Runs graphs twice: by the double references and by the CPU kernels, on the same values.

using Values = std::vector<double>;

// Rounds as storing in `type` does.
double stored(double value, DType type);
Values random_values(int64_t count, uint64_t seed, double low = -1, double high = 1);
Values random_integers(int64_t count, uint64_t seed, int64_t below);

// A small graph under construction with the values of its inputs.
class Case {
 public:
  Case() : builder(graph) {}
  Graph graph;
  GraphBuilder builder;
  std::map<TensorId, Values> given;  // what inputs hold before the run

  TensorId input(const std::string& name, Shape shape, DType type, Values values, Region region = Region::F);
  TensorId input(const std::string& name, Shape shape, DType type, uint64_t seed) {
    return input(name, shape, type, random_values(shape.elements(), seed));
  }
  std::vector<TensorId> add(Op op, std::vector<TensorId> inputs, AttributesPtr attributes);

  // All tensors' values after every node has run.
  std::map<TensorId, Values> run_reference() const;
  // The same by CPU kernels. Memory around each tensor is checked for overruns, outputs and
  // workspaces begin as NaN.
  std::map<TensorId, Values> run_cpu() const;
  std::string engine_of(size_t node) const;  // what prepare chose
};

// |found - wanted| <= tolerance * (|wanted| + scale), element by element; both NaN or the same
// infinity is equal.
void expect_close(const Values& found, const Values& wanted, double tolerance, double scale,
                  const std::string& what);

// FP32 rounding of a sum of `terms` products of magnitude about 1: the errors of the partial
// sums add up like a random walk, so sqrt(terms) ulps; 8 leaves room for their worst case over
// many elements.
double sum_tolerance(int64_t terms);
// One rounding to the type's mantissa.
double type_tolerance(DType type);

}  // namespace ren::test
