// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/memory_plan.h"

namespace ren {

// What a tensor of e elements occupies. A 32-bit slot is exactly twice a 16-bit one, so that
// W and A stay 2:1; the 16 bytes let vector loads run past the end.
constexpr uint64_t slot_bytes(DType type, uint64_t e) {
  if (type == DType::b1) return align_up(bytes_of(type, e) + 16);
  switch (size_of(type)) {
    case 1:
      return align_up(e + 16);
    case 2:
      return align_up(2 * e + 16);
    default:
      return 2 * align_up(2 * e + 16);
  }
}

// Elements a tensor or a parameter has room for. Without channel padding its own. With it, what
// 16-bit kernels want: 16-bit features and 8-bit masks C in multiples of 8, 16-bit images of 4, FP32
// its own; a parameter C and K like the features it meets, in all families alike.
// `image`: the images themselves, or a weight that meets them.
uint64_t padded_elements(const Tensor& tensor, const PlanOptions& options, bool image = false);
uint64_t padded_elements(const Parameter& parameter, const PlanOptions& options, bool image = false);

// Bytes of a tensor outside the parameter families. Those of the input region lie as the host packs
// them for one upload, without slack.
uint64_t tensor_bytes(const Tensor& tensor, const PlanOptions& options, bool image = false);

// By parameter: is it the weight of a convolution over the images?
std::vector<bool> parameters_that_meet_images(const Graph& graph);

}  // namespace ren
