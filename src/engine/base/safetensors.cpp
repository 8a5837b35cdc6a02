// SPDX-License-Identifier: Apache-2.0
#include "engine/base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/checksum.h"
#include "engine/base/file.h"
#include "engine/base/half.h"
#include "engine/base/status.h"

namespace ren {
namespace {

using nlohmann::json;

// Bytes an element takes; 0 for a type that is unknown.
int64_t element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

template <typename Stored, typename Wanted>
std::vector<Wanted> convert(std::string_view data) {
  std::vector<Wanted> out(data.size() / sizeof(Stored));
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, data.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = Wanted(value);
  }
  return out;
}

SafeTensor parse_entry(const std::string& name, const json& entry, std::string_view payload) {
  SafeTensor t;
  t.dtype = entry.at("dtype").get<std::string>();
  t.shape = entry.at("shape").get<std::vector<int64_t>>();
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  const int64_t size = element_bytes(t.dtype);
  if (size == 0) fail(StatusCode::invalid_data, "tensor '{}' has the unknown dtype '{}'", name, t.dtype);
  uint64_t bytes = uint64_t(size);
  for (const int64_t d : t.shape) {
    if (d < 0 || __builtin_mul_overflow(bytes, uint64_t(d), &bytes))
      fail(StatusCode::invalid_data, "tensor '{}' has an impossible shape", name);
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > payload.size() ||
      offsets[1] - offsets[0] != bytes)
    fail(StatusCode::invalid_data, "tensor '{}' lies outside the file or its size contradicts its shape",
         name);
  t.data = payload.substr(offsets[0], bytes);
  return t;
}

// The checksum covers the whole file, its own eight digits as zeros. In raw JSON these bytes can only be the
// entry itself: inside a string the quotes would be escaped.
constexpr std::string_view kChecksum = "\"checksum\":\"crc32:", kNoDigits = "00000000";

// Where the digits are in a header; npos: it has no checksum.
size_t find_digits(std::string_view header) {
  const size_t found = header.find(kChecksum);
  const size_t digits = found + kChecksum.size();
  if (found == std::string_view::npos || digits + kNoDigits.size() > header.size())
    return std::string_view::npos;
  return digits;
}

std::string checksum_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

void check_checksum(const std::string& path, std::string_view all, uint64_t header_bytes) {
  const size_t found = find_digits(all.substr(8, header_bytes));
  if (found == std::string_view::npos) return;
  const size_t digits = 8 + found;
  uint32_t crc = crc32(0, all.data(), digits);
  crc = crc32(crc, kNoDigits.data(), kNoDigits.size());
  const std::string_view rest = all.substr(digits + kNoDigits.size());
  crc = crc32(crc, rest.data(), rest.size());
  const std::string_view noted = all.substr(digits, kNoDigits.size());
  if (noted != checksum_text(crc))
    fail(StatusCode::invalid_data,
         "'{}' is damaged: its checksum is {}, its content has {} (it changed after it was written)", path,
         noted, checksum_text(crc));
}

}  // namespace

int64_t SafeTensor::elements() const {
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  return count;
}

SafeTensorsFile SafeTensorsFile::read(const std::string& path) {
  SafeTensorsFile file;
  file.path_ = path;
  file.buffer_ = std::make_unique<std::string>(read_file(path));
  const std::string_view all = *file.buffer_;
  uint64_t header_bytes = 0;
  if (all.size() >= 8) std::memcpy(&header_bytes, all.data(), 8);
  if (all.size() < 8 || header_bytes > all.size() - 8)
    fail(StatusCode::invalid_data, "'{}' is not a safetensors file or is cut short", path);
  check_checksum(path, all, header_bytes);
  try {
    const json header = json::parse(all.substr(8, header_bytes));
    const std::string_view payload = all.substr(8 + header_bytes);
    if (!header.is_object()) fail(StatusCode::invalid_data, "its header is no JSON object");
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        file.metadata_ = entry.get<std::map<std::string, std::string>>();
      } else {
        file.tensors_.emplace(name, parse_entry(name, entry, payload));
      }
    }
    std::vector<std::pair<const char*, const char*>> spans;
    for (const auto& [name, t] : file.tensors_)
      if (!t.data.empty()) spans.emplace_back(t.data.data(), t.data.data() + t.data.size());
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i)
      if (spans[i].first < spans[i - 1].second) fail(StatusCode::invalid_data, "two of its tensors overlap");
  } catch (const Error& e) {
    fail(StatusCode::invalid_data, "'{}' is damaged: {}", path, e.what());
  } catch (const json::exception& e) {
    fail(StatusCode::invalid_data, "'{}' is damaged: its safetensors header cannot be read ({})", path,
         e.what());
  }
  return file;
}

const SafeTensor* SafeTensorsFile::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const SafeTensor& SafeTensorsFile::at(const std::string& name) const {
  const SafeTensor* t = find(name);
  if (t == nullptr) fail(StatusCode::not_found, "'{}' has no tensor '{}'", path_, name);
  return *t;
}

std::string SafeTensorsFile::metadata_or(const std::string& key, const std::string& fallback) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? fallback : it->second;
}

std::vector<double> to_doubles(const SafeTensor& t) {
  if (t.dtype == "F64") return convert<double, double>(t.data);
  if (t.dtype == "F32") return convert<float, double>(t.data);
  if (t.dtype == "F16" || t.dtype == "BF16") {
    const DType type = t.dtype == "F16" ? DType::f16 : DType::bf16;
    std::vector<float> wide(t.data.size() / 2);
    convert_to_f32(t.data.data(), type, wide.data(), wide.size());
    return {wide.begin(), wide.end()};
  }
  fail(StatusCode::invalid_data, "a tensor of dtype {} is not floating point", t.dtype);
}

std::vector<int64_t> to_int64(const SafeTensor& t) {
  if (t.dtype == "I64") return convert<int64_t, int64_t>(t.data);
  if (t.dtype == "I32") return convert<int32_t, int64_t>(t.data);
  if (t.dtype == "I16") return convert<int16_t, int64_t>(t.data);
  if (t.dtype == "I8") return convert<int8_t, int64_t>(t.data);
  if (t.dtype == "U8" || t.dtype == "BOOL") return convert<uint8_t, int64_t>(t.data);
  fail(StatusCode::invalid_data, "a tensor of dtype {} is not a signed integer", t.dtype);
}

void write_safetensors(const std::string& path, const std::map<std::string, SafeTensor>& tensors,
                       std::map<std::string, std::string> metadata, bool with_checksum) {
  if (with_checksum) metadata["checksum"] = fmt::format("crc32:{}", kNoDigits);
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, t] : tensors) {
    require(uint64_t(t.elements() * element_bytes(t.dtype)) == t.data.size(), "tensor '{}' has {} bytes",
            name, t.data.size());
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {offset, offset + t.data.size()}}};
    offset += t.data.size();
  }
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');  // the format pads with spaces
  const uint64_t header_bytes = text.size();
  if (with_checksum) {
    uint32_t crc = crc32(crc32(0, &header_bytes, 8), text.data(), text.size());
    for (const auto& [name, t] : tensors) crc = crc32(crc, t.data.data(), t.data.size());
    text.replace(find_digits(text), kNoDigits.size(), checksum_text(crc));
  }
  AtomicFile file(path);
  file.write(&header_bytes, 8);
  file.write(text);
  for (const auto& [name, t] : tensors) file.write(t.data);
  file.commit();
}

}  // namespace ren
