// SPDX-License-Identifier: Apache-2.0
#include "importer/host_value.h"

#include <algorithm>

namespace ren::importer {

bool HostValue::depends_on_batch() const {
  return std::any_of(batch.begin(), batch.end(), [](uint8_t b) { return b != 0; });
}

bool HostValue::is_uniform() const {
  const size_t count = is_real() ? reals.size() : ints.size();
  for (size_t i = 1; i < count; ++i)
    if (is_real() ? reals[i] != reals[0] : ints[i] != ints[0]) return false;
  return count > 0;
}

void HostValue::resize(size_t count) {
  if (is_real()) {
    reals.resize(count);
  } else {
    ints.resize(count);
  }
}

HostValue HostValue::integers(std::vector<int64_t> values) {
  HostValue v;
  v.dims = {int64_t(values.size())};
  v.ints = std::move(values);
  return v;
}

HostValue HostValue::scalar(int64_t value) {
  HostValue v;
  v.ints = {value};
  return v;
}

HostValue HostValue::real_scalar(double value) {
  HostValue v;
  v.element = Element::real;
  v.reals = {value};
  return v;
}

}  // namespace ren::importer
