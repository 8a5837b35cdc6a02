// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/ops/permute/permute.h"

namespace ren {

// One axis of the output in its order: its extent and the distance of its elements in x.
struct OutputAxis {
  int64_t extent, stride;
};

// Axes that stay neighbours are one axis; those of extent 1 are none.
inline std::vector<OutputAxis> axes_of(const PermuteAttributes& a, int64_t samples) {
  std::vector<int64_t> strides(a.split.size(), 1);
  for (size_t i = a.split.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * a.split[i + 1];
  std::vector<OutputAxis> axes{{samples, strides[0] * a.split[0]}};
  for (const int from : a.order) {
    const OutputAxis next{a.split[size_t(from)], strides[size_t(from)]};
    if (next.extent == 1) continue;
    OutputAxis& last = axes.back();
    if (last.stride == next.extent * next.stride || last.extent == 1) {
      last = {last.extent * next.extent, next.stride};
    } else {
      axes.push_back(next);
    }
  }
  return axes;
}

}  // namespace ren
