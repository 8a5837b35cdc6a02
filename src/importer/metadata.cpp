// SPDX-License-Identifier: Apache-2.0
// The entries of metadata_props that this program writes and reads.
#include "importer/metadata.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/status.h"

namespace ren::importer {
namespace {

using nlohmann::json;

constexpr const char* kAsMarked = "as_marked";

json parsed(const std::string& value) { return json::parse(value, nullptr, false); }

bool is_list_of_names(const json& j) {
  return j.is_array() && std::all_of(j.begin(), j.end(), [](const json& v) { return v.is_string(); });
}

bool is_list_of_numbers(const json& j, const char* key, bool positive) {
  if (!j.is_object() || !j.contains(key) || !j[key].is_array() || j[key].empty()) return false;
  return std::all_of(j[key].begin(), j[key].end(), [&](const json& v) {
    if (!v.is_number()) return false;
    const auto value = v.get<float>();
    return std::isfinite(value) && (!positive || value > 0);
  });
}

bool is_normalization(const json& j) {
  return is_list_of_numbers(j, "mean", false) && is_list_of_numbers(j, "std", true) &&
         j["mean"].size() == j["std"].size();
}

}  // namespace

std::set<std::string> trainable_names(const std::string& value) {
  const json list = parsed(value);
  if (!is_list_of_names(list))
    fail(StatusCode::invalid_model, "metadata renaissance.trainable is no JSON array of initializer names");
  std::set<std::string> names;
  for (const json& name : list) names.insert(name.get<std::string>());
  return names;
}

bool batch_norm_as_marked(const std::string& value) {
  if (value != kAsMarked)
    fail(StatusCode::invalid_model, "metadata {} is '{}'; '{}' is the only value it has", kBatchNormKey, value,
         kAsMarked);
  return true;
}

void check_metadata(const std::string& key, const std::string& value) {
  const char* wanted = nullptr;
  if (key == "renaissance.trainable" && !is_list_of_names(parsed(value)))
    wanted = "a JSON array of initializer names";
  if (key == kBatchNormKey && value != kAsMarked) wanted = "'as_marked'";
  if (key == "renaissance.classes" && !is_list_of_names(parsed(value)))
    wanted = "a JSON array of class names";
  if (key == "renaissance.normalize" && !is_normalization(parsed(value)))
    wanted = "a JSON object with the arrays of numbers mean and std, a number for each channel";
  if (wanted != nullptr)
    fail(StatusCode::invalid_argument, "metadata '{}' has to be {}, not '{}'", key, wanted, value);
}

}  // namespace ren::importer
