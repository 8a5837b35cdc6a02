// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/safetensors.h"
#include "engine/compile/spec.h"

namespace ren {

// What PyTorch itself is off by when it replays a golden file under autocast, as the Python helper records
// it: by tensor of the golden file, max|autocast - golden|.
struct Peer {
  std::string case_name, device, torch;
  Precision precision = Precision::fp16;
  int64_t replays = 1;  // of which each error is the largest
  std::map<std::string, double> errors;
};

// The content of a peer file (JSON, format renaissance-peer-1); `name` is what its errors call it.
// Throws invalid_data when it is none or is incomplete.
Peer parse_peer(const std::string& text, const std::string& name);

// Throws when the peer is not of this golden file at this precision, or lacks one of its tensors.
void check_peer(const Peer& peer, const SafeTensorsFile& golden, Precision precision);

}  // namespace ren
