// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Takes one batch from the input slot that Scalar::step selects (step & 1).
// Inputs: slot 0 record (I, u8 [1,1,1,256]), slot 0 labels (I, i32), slot 0 images (I, u8 or f32
// [N,H,W,C]), the same three of slot 1, Scalar::step. Labels may be absent (predict).
// Outputs: images (f32 or 16-bit, normalised: (x - mean[c]) * scale[c]), labels (i32; absent when
// not wanted), then every record scalar in Scalar's order, copied from the record.
struct LoadBatchAttributes final : Attributes {
  std::vector<float> mean, scale;  // one a channel; pixel units 0..255 for u8 images
  DType image_type = DType::f32;   // of the images output
  int64_t channels = 0;            // of the images output: more than the images' are zeros; 0: as many
  std::string text() const override;
};

}  // namespace ren
