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
// With `mixes`, which needs labels, images are mixed as the record's BatchMix says, after the normalisation:
// inside * x[n] + (1 - inside) * x[n - 1] in its box, x[n] outside; n - 1 of the first sample is the last.
// Two more outputs follow: the partners' labels (i32, those of n - 1) and BatchMix::own (f32 [1,1,1,1]).
struct LoadBatchAttributes final : Attributes {
  std::vector<float> mean, scale;  // one a channel; pixel units 0..255 for u8 images
  DType image_type = DType::f32;   // of the images output
  int64_t channels = 0;            // of the images output: more than the images' are zeros; 0: as many
  bool mixes = false;
  std::string text() const override;
};

}  // namespace ren
