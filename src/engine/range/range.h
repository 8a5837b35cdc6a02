// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// Operations over whole regions. They know ranges, dtypes, device scalars and the segment table,
// never shapes or nodes. Node inputs are device scalars; the regions are in the attributes.

// range_cast: target (A) = source (W) in 16 bits. Slot sizes are 2:1, so it is one loop.
// range_copy: target = source. range_clear: target = 0.
struct RangeAttributes final : Attributes {
  RangeAttributes(Region s, Region t, DType type = DType::f32) : source(s), target(t), target_type(type) {}
  Region source, target;
  DType target_type;
  std::string text() const override;
};

// range_check_finite: inputs loss_scale, overflow. G *= 1 / loss_scale; overflow = 1 when any element
// is not finite, else 0 (always written). attributes: RangeAttributes(G, G).
// range_update_loss_scale: inputs overflow, loss_scale, growth_tracker, skipped_steps,
// skipped_in_a_row, step, all updated in place: torch.amp.GradScaler's rule with a floor; step += 1
// whether skipped or not. In FP32 mode only the step is counted.
struct LossScaleAttributes final : Attributes {
  float growth = 2.0f, backoff = 0.5f, floor = 1.0f, ceiling = 65536.0f * 256.0f;
  int32_t growth_interval = 2000;
  bool enabled = true;
  std::string text() const override;
};

// range_sgd: inputs learning_rate, momentum, weight_decay, overflow (may be absent in FP32 mode).
// torch.optim.SGD for each segment that isn't frozen, dampening 0:
//   g = G + wd * W;  M = momentum * M + g (M = g on a zeroed buffer is the same);
//   d = nesterov ? g + momentum * M : M;  W -= lr * d;   without momentum d = g and M is absent.
// Does nothing when overflow is set. Also writes A = W in `copy_type` when has_copy.
// range_lars: for kLars segments g = ratio * (G + wd * W), everything else the same, with
//   ratio = trust * |W| / (|G| + wd * |W| + 1e-9), 1 when either norm is zero (You, Gitman, Ginsburg,
//   "Large batch training of convolutional networks", 2017: the local rate scales what enters the
//   momentum, not the velocity). trust_coefficient is the fifth input, after overflow.
struct OptimizerAttributes final : Attributes {
  bool use_momentum = true, nesterov = false;
  bool has_copy = false;
  DType copy_type = DType::f16;
  std::string text() const override;
};

// range_ema: E = decay * E + (1 - decay) * W; inputs ema_decay, overflow (may be absent).
struct EmaAttributes final : Attributes {
  std::string text() const override { return "ema"; }
};

// Inputs of range ops are device scalars: `least` of them at least, later ones may be absent.
void check_scalars(const Node& node, std::span<const TensorType> inputs, size_t least, size_t most);

}  // namespace ren
