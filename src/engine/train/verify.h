// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/safetensors.h"
#include "engine/train/peer.h"
#include "engine/train/trainer.h"

namespace ren {

// A model as a golden file speaks of it: by the file's tensor names, in the file's layout.
struct VerifyModel {
  ModelState state;
  std::string input;                             // the graph input's name
  std::vector<std::string> parameters, buffers;  // by Graph::parameters and Graph::buffers
  using ToFile = std::function<std::vector<float>(int32_t index, const std::vector<float>& engine)>;
  ToFile parameter_to_file, buffer_to_file;
};

struct VerifyOptions {
  Precision precision = Precision::fp32;
  double tolerance = 0;  // 0: default_tolerance(precision), with a peer kPeerTolerance
  // PyTorch's own errors in 16 bits: a number passes within the tolerance, whose bounds are then the same
  // for gradients as for outputs, or within kPeerFactor times PyTorch's error.
  std::optional<Peer> peer;
  const Backend* backend = nullptr;
  int device_index = 0;
};

// 1e-4 in FP32, where a right engine stays within half of the bounds; 3e-2 in FP16 and 1e-1 in BF16,
// where activations carry 11 and 8 significant bits through tens of layers.
double default_tolerance(Precision precision);
// With a peer there is no need to guess what 16 bits cost.
constexpr double kPeerTolerance = 3e-2;
// One draw of what rounding does against another: about twice apart is what equals differ by.
constexpr double kPeerFactor = 2.0;

enum class VerifyGroup : uint8_t { evaluation, output, loss, gradient, parameter, change, buffer };
constexpr int kVerifyGroups = 7;
const char* name_of(VerifyGroup group);

// The largest difference within one golden tensor, and what it may be.
struct Comparison {
  VerifyGroup group = VerifyGroup::output;
  std::string tensor;  // its name in the golden file
  double error = 0, bound = 0;
  double tolerance_bound = 0;        // bound is this or kPeerFactor times the peer's error, if that is more
  std::optional<double> peer_error;  // where a peer was given
  double ratio() const { return bound > 0 ? error / bound : error; }
  bool passes() const { return error <= bound; }  // false for NaN
  bool needs_peer() const { return passes() && !(error <= tolerance_bound); }
};

struct VerifyResult {
  std::string case_name, device;
  Precision precision = Precision::fp32;
  double tolerance = 0;
  std::vector<Comparison> comparisons;
  std::vector<std::string> notes;
  double loss_scale = 1;     // that was used (16 bits)
  std::optional<Peer> peer;  // that was compared with

  bool passed() const;
  size_t needed_peer() const;  // comparisons that passed only because PyTorch is as far off
  std::string text() const;
  nlohmann::json json() const;
};

// The parameters that a golden file trains: the names below step0/grad/. Empty for content=eval.
std::vector<std::string> golden_parameters(const SafeTensorsFile& golden);

// Replays what PyTorch recorded - inference with the initial values, three training steps - and
// compares every tensor of the golden file. Throws Error with all reasons when the file is not a
// golden of this model.
VerifyResult verify_golden(const VerifyModel& model, const SafeTensorsFile& golden,
                           const VerifyOptions& options);

}  // namespace ren
