// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/device/device.h"
#include "engine/plan/memory_plan.h"

namespace ren {

// tf32: FP32 tensors, whose convolutions and matrix products a GPU computes from operands rounded to 11 bits.
enum class Precision : uint8_t { fp32, fp16, bf16, tf32 };
const char* name_of(Precision precision);
constexpr DType compute_type(Precision precision) {
  return precision == Precision::fp16 ? DType::f16 : precision == Precision::bf16 ? DType::bf16 : DType::f32;
}
constexpr bool is_mixed(Precision precision) { return is_16bit(compute_type(precision)); }

// How images reach the network: (pixel - mean[c]) * scale[c]. Empty: as they are.
struct InputSpec {
  DType image_type = DType::u8;    // what the batch source delivers
  std::vector<float> mean, scale;  // in the source's units (0..255 for u8)
};

struct OutputLoss {
  std::string output;  // the ONNX output's name
  float weight = 1.0f;
};

// Cross entropy of one or several outputs, weighted and summed.
struct LossSpec {
  std::vector<OutputLoss> outputs;  // empty: the first output with weight 1
  float label_smoothing = 0.0f;
  int32_t ignore_index = -100;
};

// Whether training steps mix the samples of a batch: the alphas of torchvision's MixUp and CutMix, 0: not
// that one. With both, each step takes one of them, with equal chances.
struct MixSpec {
  static constexpr double kLeastAlpha = 0.001, kMostAlpha = 1000;
  double mixup = 0, cutmix = 0;
  bool any() const { return mixup > 0 || cutmix > 0; }
  bool operator==(const MixSpec&) const = default;
};

enum class OptimizerKind : uint8_t { sgd, lars };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  bool momentum = true;  // false: no M region at all
  bool nesterov = false;
  bool ema = false;
};

struct LossScaleSpec {
  float initial = 65536.0f, growth = 2.0f, backoff = 0.5f, floor = 1.0f;
  int32_t growth_interval = 2000;
};

// What passes need to know of the device: which forms its kernels have, what work costs there.
struct TargetSpec {
  bool pads_images = false;           // 16-bit images to a multiple of 4 channels, for its convolutions
  bool computes_in_pools = false;     // PoolAttributes::expression
  bool stores_in_reductions = false;  // ReduceAttributes::stored
  bool sums_in_convolutions = false;  // ConvAttributes::sums
  bool packs_masks = false;           // tensors of DType::b1
  bool views_operands = false;        // ExpressionAttributes::views
  int64_t heavy_prim_bytes = 8;       // what evaluating exp and the like costs, in bytes moved
};
TargetSpec target_of(DeviceKind kind);

// What all variants of one training share.
struct TrainingSpec {
  Precision precision = Precision::fp32;
  InputSpec input;
  LossSpec loss;
  MixSpec mix;
  OptimizerSpec optimizer;
  LossScaleSpec loss_scale;
  TargetSpec target;
};

// One program to compile: what it does and for which batch.
struct VariantSpec {
  Role role = Role::step;
  int64_t batch = 1;
};

}  // namespace ren
