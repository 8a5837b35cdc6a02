// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/ir/scalars.h"

namespace ren {

// How one training step mixes each sample with its partner, the sample before it in the batch (of the first,
// the last). It travels at the end of the step record. MixUp: the box is the whole picture, inside = own =
// lambda. CutMix: inside = 0, own = the share of the picture outside the box. All zeros but own = 1: nothing
// is mixed.
struct BatchMix {
  int32_t top = 0, left = 0, bottom = 0, right = 0;  // the box in pixels; bottom and right are outside it
  float inside = 0.0f;                               // share of a sample's own pixels in the box
  float own = 1.0f;                                  // share of a sample's own label in its target
};
static_assert(sizeof(BatchMix) == 24, "kernels read it as six words");

constexpr int kMixOffset = kStepRecordBytes - int(sizeof(BatchMix));

constexpr int record_scalar_bytes() {
  int bytes = 0;
  for (const ScalarInfo& info : kScalars)
    if (info.source == ScalarSource::record) bytes += 4 * info.components;
  return bytes;
}
static_assert(record_scalar_bytes() <= kMixOffset, "the step record is full");

}  // namespace ren
