// SPDX-License-Identifier: Apache-2.0
// From the C API's options to the trainer's.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "capi/device.h"
#include "capi/trainer.h"
#include "data/augment/normalization.h"

namespace ren::capi {
namespace {

// "OUTPUT" or "OUTPUT:WEIGHT"; an output's own name may have a colon.
OutputLoss parse_loss(const std::string& item, const std::string& text, const Graph& graph) {
  const auto exists = [&](const std::string& name) {
    return std::any_of(graph.outputs.begin(), graph.outputs.end(),
                       [&](const GraphOutput& o) { return o.name == name; });
  };
  if (exists(item)) return {item, 1.0f};
  const size_t colon = item.rfind(':');
  OutputLoss loss{item.substr(0, colon), 1.0f};
  if (loss.output.empty())
    fail(StatusCode::invalid_argument, "losses '{}': an output's name is missing", text);
  if (!exists(loss.output))
    fail(StatusCode::not_found, "losses '{}': the model has no output '{}'", text, loss.output);
  const char* const last = item.data() + item.size();
  const auto [end, error] = std::from_chars(item.data() + colon + 1, last, loss.weight);
  if (error != std::errc() || end != last)
    fail(StatusCode::invalid_argument, "losses '{}': '{}' is not OUTPUT or OUTPUT:WEIGHT", text, item);
  if (!std::isfinite(loss.weight) || loss.weight <= 0)
    fail(StatusCode::invalid_argument, "losses '{}': the weight of '{}' has to be finite and above 0", text,
         loss.output);
  return loss;
}

std::vector<OutputLoss> parse_losses(const std::string& text, const Graph& graph) {
  std::vector<OutputLoss> losses;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    OutputLoss loss = parse_loss(text.substr(begin, comma - begin), text, graph);
    for (const OutputLoss& other : losses)
      if (other.output == loss.output)
        fail(StatusCode::invalid_argument, "losses '{}': output '{}' is named twice", text, loss.output);
    losses.push_back(std::move(loss));
    begin = comma + 1;
  }
  return losses;
}

// (x - mean) / std of the API, with x = byte / 255 for bytes, as the engine's (pixel - mean) * scale.
InputSpec input_spec(const ren_trainer_options& o, size_t channels) {
  InputSpec spec;
  const bool bytes = o.image_type == REN_IMAGE_UINT8;
  if (!bytes && o.image_type != REN_IMAGE_FLOAT32)
    fail(StatusCode::invalid_argument, "image_type is {}", o.image_type);
  spec.image_type = bytes ? DType::u8 : DType::f32;
  std::vector<float> mean(channels, 0.0f), deviation(channels, 1.0f);
  if (o.channel_count > 0) {
    if (o.normalize != nullptr)
      fail(StatusCode::invalid_argument, "normalize and mean, std exclude each other");
    if (o.channel_count != 1 && o.channel_count != channels)
      fail(StatusCode::invalid_argument, "channel_count is {}, the model's input has {} channels",
           o.channel_count, channels);
    not_null(o.mean, "mean");
    not_null(o.std, "std");
    for (size_t c = 0; c < channels; ++c) {
      mean[c] = o.mean[o.channel_count == 1 ? 0 : c];
      deviation[c] = o.std[o.channel_count == 1 ? 0 : c];
    }
  } else if (o.normalize != nullptr) {
    const data::Normalization* named = data::find_normalization(o.normalize);
    if (named == nullptr)
      fail(StatusCode::invalid_argument,
           "normalize '{}' is not known; there are none, half, imagenet, cifar10, cifar100, mnist, clip",
           o.normalize);
    for (size_t c = 0; c < channels; ++c) {
      mean[c] = named->mean[c < 3 ? c : 0];
      deviation[c] = named->std[c < 3 ? c : 0];
    }
  }
  for (size_t c = 0; c < channels; ++c) {
    if (!std::isfinite(mean[c]) || !std::isfinite(deviation[c]) || deviation[c] <= 0)
      fail(StatusCode::invalid_argument, "normalisation of channel {}: mean {}, std {}", c, mean[c],
           deviation[c]);
    const double unit = bytes ? 255.0 : 1.0;
    spec.mean.push_back(float(double(mean[c]) * unit));
    spec.scale.push_back(float(1.0 / (double(deviation[c]) * unit)));
  }
  return spec;
}

void check_enum(int32_t value, int32_t last, const char* what) {
  if (value < 0 || value > last) fail(StatusCode::invalid_argument, "{} is {}", what, value);
}

void check_numbers(const ren_trainer_options& o) {
  Problems problems;
  const auto want = [&](bool good, const char* where, double value, const char* what) {
    if (!good) problems.add(where, fmt::format("is {}; {}", value, what));
  };
  const auto positive = [&](double value, const char* where) {
    want(std::isfinite(value) && value >= 0, where, value, "it has to be finite and not negative");
  };
  constexpr int64_t most = kMostBatch;
  want(o.batch >= 0 && o.batch <= most, "batch", double(o.batch), "it has to be in 1 to 16777216");
  want(o.evaluation_batch >= 0 && o.evaluation_batch <= most, "evaluation_batch", double(o.evaluation_batch),
       "it has to be in 1 to 16777216");
  positive(o.learning_rate, "learning_rate");
  want(o.momentum >= 0 && o.momentum < 1, "momentum", o.momentum, "it has to be in [0, 1)");
  positive(o.weight_decay, "weight_decay");
  want(o.label_smoothing >= 0 && o.label_smoothing < 1, "label_smoothing", o.label_smoothing,
       "it has to be in [0, 1)");
  const auto alpha = [&](double value, const char* where) {
    want(value == 0 || (value >= MixSpec::kLeastAlpha && value <= MixSpec::kMostAlpha), where, value,
         "it has to be in 0.001 to 1000, or 0 for none");
  };
  alpha(o.mixup_alpha, "mixup_alpha");
  alpha(o.cutmix_alpha, "cutmix_alpha");
  positive(o.warmup_epochs, "warmup_epochs");
  positive(o.final_learning_rate, "final_learning_rate");
  positive(o.step_epochs, "step_epochs");
  want(o.schedule != REN_SCHEDULE_STEP || o.step_epochs != 0, "step_epochs", o.step_epochs,
       "the step schedule needs it");
  positive(o.gamma, "gamma");
  positive(o.trust_coefficient, "trust_coefficient");
  want(o.ema_decay >= 0 && o.ema_decay < 1, "ema_decay", o.ema_decay, "it has to be in [0, 1)");
  want(o.epochs >= 0, "epochs", double(o.epochs), "it has to be at least 1");
  want(o.max_skipped_steps >= 0, "max_skipped_steps", o.max_skipped_steps, "it has to be at least 1");
  positive(o.loss_scale, "loss_scale");
  problems.throw_if_any(StatusCode::invalid_argument, "the trainer's options are not usable");
}

}  // namespace

Precision precision_of(int32_t value) {
  static_assert(int(Precision::fp32) == REN_PRECISION_FP32 && int(Precision::fp16) == REN_PRECISION_FP16 &&
                int(Precision::bf16) == REN_PRECISION_BF16 && int(Precision::tf32) == REN_PRECISION_TF32);
  check_enum(value, REN_PRECISION_TF32, "precision");
  return Precision(value);
}

std::string normalization_text(const ren_trainer_options& o, size_t channels) {
  if (o.image_type != REN_IMAGE_UINT8) return {};
  const data::Normalization* const named =
      data::find_normalization(o.channel_count > 0 || o.normalize == nullptr ? "none" : o.normalize);
  std::vector<double> mean, deviation;
  const auto number = [](float v) {
    return std::stod(fmt::format("{}", v));
  };  // 0.485, not 0.48500001430511475
  for (size_t c = 0; c < channels; ++c) {
    const size_t own = o.channel_count == 1 ? 0 : c, preset = c < 3 ? c : 0;
    mean.push_back(number(o.channel_count > 0 ? o.mean[own] : named->mean[preset]));
    deviation.push_back(number(o.channel_count > 0 ? o.std[own] : named->std[preset]));
  }
  return nlohmann::json({{"mean", mean}, {"std", deviation}}).dump();
}

TrainerOptions trainer_options(const ren_trainer_options& o, const Model& model) {
  check_enum(o.optimizer, REN_OPTIMIZER_LARS, "optimizer");
  check_enum(o.schedule, REN_SCHEDULE_COSINE, "schedule");
  check_flag(o.nesterov, "nesterov");
  check_flag(o.evaluation_only, "evaluation_only");
  check_flag(o.decay_weights_only, "decay_weights_only");
  check_flag(o.deterministic, "deterministic");
  check_numbers(o);
  static_assert(int(OptimizerKind::lars) == REN_OPTIMIZER_LARS &&
                int(ScheduleKind::constant) == REN_SCHEDULE_CONSTANT &&
                int(ScheduleKind::step) == REN_SCHEDULE_STEP &&
                int(ScheduleKind::cosine) == REN_SCHEDULE_COSINE);
  TrainerOptions out;
  out.spec.precision = precision_of(o.precision);
  out.spec.input = input_spec(o, size_t(model.imported.input.channels));
  if (o.losses != nullptr)
    out.spec.loss.outputs = parse_losses(text_of(o.losses, "losses"), model.imported.graph);
  out.spec.loss.label_smoothing = o.label_smoothing;
  if (o.ignore_index != 0) out.spec.loss.ignore_index = o.ignore_index;
  out.spec.mix = {o.mixup_alpha, o.cutmix_alpha};
  out.spec.optimizer.kind = OptimizerKind(o.optimizer);
  out.spec.optimizer.nesterov = o.nesterov != 0;
  out.spec.optimizer.momentum = o.momentum > 0;
  out.spec.optimizer.ema = o.ema_decay > 0;
  if (o.loss_scale > 0) out.spec.loss_scale.initial = o.loss_scale;
  if (o.batch > 0) out.batch = o.batch;
  if (o.other_batch_count > 0) not_null(o.other_batches, "other_batches");
  for (size_t i = 0; i < o.other_batch_count; ++i) {
    if (o.other_batches[i] < 1 || o.other_batches[i] > kMostBatch)
      fail(StatusCode::invalid_argument, "other_batches[{}] is {}", i, o.other_batches[i]);
    out.other_batches.push_back(o.other_batches[i]);
  }
  out.evaluation_batch = o.evaluation_batch;
  out.evaluation_only = o.evaluation_only != 0;
  if (o.learning_rate > 0) out.learning_rate = o.learning_rate;
  out.momentum = o.momentum;
  out.weight_decay = o.weight_decay;
  if (o.trust_coefficient > 0) out.trust_coefficient = o.trust_coefficient;
  if (o.ema_decay > 0) out.ema_decay = o.ema_decay;
  out.schedule = ScheduleKind(o.schedule);
  out.warmup_epochs = o.warmup_epochs;
  out.final_rate = o.final_learning_rate;
  out.step_epochs = o.step_epochs;
  if (o.gamma > 0) out.gamma = o.gamma;
  if (o.epochs > 0) out.epochs = o.epochs;
  out.seed = o.seed;
  if (o.max_skipped_steps > 0) out.max_skipped_in_a_row = o.max_skipped_steps;
  out.memory_limit = o.memory_limit;
  out.deterministic = o.deterministic != 0;
  const ChosenDevice device = choose_device(text_or(o.device, "auto", "device"));
  out.backend = device.backend;
  out.device_index = device.index;
  return out;
}

}  // namespace ren::capi
