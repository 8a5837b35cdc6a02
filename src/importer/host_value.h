// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "importer/axis_map.h"

namespace ren::importer {

enum class Element : uint8_t { real, integer, boolean };

// A tensor whose content is known while importing: shapes, bounds, indices, constants.
// Booleans lie in `ints`.
struct HostValue {
  Element element = Element::integer;
  Dims dims;
  std::vector<double> reals;  // rounded to FP32 after each operation
  std::vector<int64_t> ints;
  // By element: nonzero where the number depends on the batch size, which the graph must
  // not contain. Empty: nowhere.
  std::vector<uint8_t> batch;
  std::vector<int> sources;  // floating-point tensors of the file that it was computed from
  std::string name;          // the ONNX value's

  int64_t elements() const { return product(dims); }
  bool is_real() const { return element == Element::real; }
  double at(size_t i) const { return is_real() ? reals[i] : double(ints[i]); }
  bool depends_on_batch() const;
  bool depends_on_batch(size_t i) const { return i < batch.size() && batch[i] != 0; }
  bool is_uniform() const;  // all elements equal
  void resize(size_t count);

  static HostValue integers(std::vector<int64_t> values);
  static HostValue scalar(int64_t value);
  static HostValue real_scalar(double value);
};

// More than this is no shape arithmetic: a damaged or hostile file.
constexpr int64_t kMaxHostElements = int64_t{1} << 27;

}  // namespace ren::importer
