// SPDX-License-Identifier: Apache-2.0
#include "engine/train/peer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/status.h"

namespace ren {
namespace {

constexpr double kMostError = 3.4e38;  // of numbers in FP32

constexpr const char* kFormat = "renaissance-peer-1";

template <typename T>
T field(const nlohmann::json& j, const char* key, const std::string& name) {
  try {
    return j.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(StatusCode::invalid_data, "the peer file '{}' has no usable '{}'; record it again", name, key);
  }
}

Precision precision_named(const std::string& word, const std::string& name) {
  for (const Precision p : {Precision::fp16, Precision::bf16, Precision::tf32})
    if (word == name_of(p)) return p;
  fail(StatusCode::invalid_data, "the peer file '{}' has the precision '{}', not fp16, bf16 or tf32", name,
       word);
}

// Inputs and targets are given; the other kinds of tensors in a golden file are results: STEP/KIND/NAME.
bool is_result(const std::string& tensor) {
  const size_t begin = std::min(tensor.find('/'), tensor.size() - 1) + 1;
  const std::string kind = tensor.substr(begin, tensor.find('/', begin) - begin);
  return kind == "loss" || kind == "output" || kind == "grad" || kind == "param" || kind == "buffer";
}

}  // namespace

Peer parse_peer(const std::string& text, const std::string& name) {
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  if (j.is_discarded())
    fail(StatusCode::invalid_data,
         "'{}' is no peer file: it is not JSON (cut off or damaged?); python -m renaissance autocast writes "
         "one",
         name);
  const auto format = j.is_object() ? j.find("format") : j.end();
  if (!j.is_object() || format == j.end() || *format != kFormat)
    fail(StatusCode::invalid_data,
         "'{}' is no peer file: its format is not '{}'; python -m renaissance autocast writes one", name,
         kFormat);
  Peer peer;
  peer.case_name = field<std::string>(j, "case", name);
  peer.device = field<std::string>(j, "device", name);
  peer.torch = field<std::string>(j, "torch", name);
  peer.precision = precision_named(field<std::string>(j, "precision", name), name);
  if (!j.contains("replays") || !j["replays"].is_number_integer())
    fail(StatusCode::invalid_data, "the peer file '{}' has no usable 'replays'; record it again", name);
  peer.replays = field<int64_t>(j, "replays", name);
  if (peer.replays < 1) fail(StatusCode::invalid_data, "the peer file '{}' has no replay", name);
  for (const auto& [tensor, error] : field<nlohmann::json::object_t>(j, "errors", name)) {
    if (!error.is_number() || !std::isfinite(error.get<double>()) || error.get<double>() < 0 ||
        error.get<double>() > kMostError)
      fail(StatusCode::invalid_data,
           "the peer file '{}' has the error {} of '{}', not a number of at least 0 that FP32 can hold", name,
           error.dump(), tensor);
    peer.errors[tensor] = error.get<double>();
  }
  return peer;
}

void check_peer(const Peer& peer, const SafeTensorsFile& golden, Precision precision) {
  if (precision == Precision::fp32)
    fail(StatusCode::invalid_argument,
         "a peer file tells what fewer bits cost PyTorch; fp32 is compared without one");
  if (peer.precision != precision)
    fail(StatusCode::invalid_data, "the peer file is of {}; the engine is verified in {}",
         name_of(peer.precision), name_of(precision));
  if (const std::string name = golden.metadata_or("case", ""); peer.case_name != name)
    fail(StatusCode::invalid_data, "the peer file is of the case '{}', the golden file of '{}'",
         peer.case_name, name);
  std::vector<std::string> missing;
  for (const auto& [tensor, content] : golden.tensors())
    if (is_result(tensor) && peer.errors.count(tensor) == 0) missing.push_back(tensor);
  if (!missing.empty())
    fail(StatusCode::invalid_data,
         "the peer file lacks {} of the golden file's tensors ('{}', for one); record it with this very "
         "golden "
         "file",
         missing.size(), missing[0]);
}

}  // namespace ren
