// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/shape.h"

namespace ren::importer {

using Dims = std::vector<int64_t>;

// The NHWC dimension of each ONNX axis: 0 N, 1 H, 2 W, 3 C.
using Assignment = std::vector<int>;

// How the axes of an ONNX value lie in memory. The memory is a row-major array of atoms,
// extents that nothing has split so far; each axis is a list of atoms, outermost first. An
// NCHW image in NHWC memory has atoms N,H,W,C and axes {N},{C},{H},{W}; flattened, it has
// axes {N},{C,H,W} over the same memory. Atoms of extent 1 don't exist, but for the batch.
struct AxisMap {
  Dims atoms;
  int batch = -1;  // the atom that counts the samples; -1 in weights
  std::vector<std::vector<int>> axes;

  // Memory in the order of the axes.
  static AxisMap plain(std::span<const int64_t> dims);
  // An engine tensor whose axes are whole dimensions.
  static AxisMap of(const Shape& shape, const Assignment& assignment);

  int rank() const { return int(axes.size()); }
  int64_t extent(int axis) const;
  int64_t extent_of(std::span<const int> list) const;
  Dims dims() const;
  bool has_batch(int axis) const;
  // The axis that is the batch and nothing else; -1 when there is none.
  int batch_axis() const;
  // Atoms in the order of the axes.
  std::vector<int> in_axis_order() const;

  void transpose(std::span<const int> order);
  // Splits one atom in two, the outer of extent `outer`.
  void split(int atom, int64_t outer);
  // False, and nothing changes, when the new axes cut across the atoms.
  bool reshape(const Dims& target);
  // Makes one axis consist of atoms of these extents; false when it cannot.
  bool refine(int axis, std::span<const int64_t> extents);
  // For an axis of another map, makes both consist of atoms of equal extents.
  static bool align(AxisMap& a, int axis_a, AxisMap& b, int axis_b);
};

// N and C first, H and W last: rank 2 is {N,C}, rank 3 {N,C,W}, rank 4 {N,C,H,W}.
Assignment channels_first(int rank);
// Rank 2 {N,C}, rank 3 {N,W,C}, rank 4 {N,H,W,C}.
Assignment channels_last(int rank);

int64_t product(std::span<const int64_t> dims);

}  // namespace ren::importer
