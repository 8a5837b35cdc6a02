// SPDX-License-Identifier: Apache-2.0
// Between TensorProto and numbers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "engine/base/half.h"
#include "importer/onnx_file.h"

namespace ren::importer {

namespace fs = std::filesystem;
using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

const char* type_name(int type) {
  switch (type) {
    case TensorProto::FLOAT:
      return "float32";
    case TensorProto::UINT8:
      return "uint8";
    case TensorProto::INT8:
      return "int8";
    case TensorProto::UINT16:
      return "uint16";
    case TensorProto::INT16:
      return "int16";
    case TensorProto::INT32:
      return "int32";
    case TensorProto::INT64:
      return "int64";
    case TensorProto::STRING:
      return "string";
    case TensorProto::BOOL:
      return "bool";
    case TensorProto::FLOAT16:
      return "float16";
    case TensorProto::DOUBLE:
      return "float64";
    case TensorProto::UINT32:
      return "uint32";
    case TensorProto::UINT64:
      return "uint64";
    case TensorProto::BFLOAT16:
      return "bfloat16";
    case TensorProto::COMPLEX64:
      return "complex64";
    case TensorProto::COMPLEX128:
      return "complex128";
    default:
      return "an unknown type";
  }
}

bool is_real_type(int type) {
  return type == TensorProto::FLOAT || type == TensorProto::FLOAT16 || type == TensorProto::DOUBLE ||
         type == TensorProto::BFLOAT16;
}

bool is_integer_type(int type) {
  switch (type) {
    case TensorProto::UINT8:
    case TensorProto::INT8:
    case TensorProto::UINT16:
    case TensorProto::INT16:
    case TensorProto::INT32:
    case TensorProto::INT64:
    case TensorProto::BOOL:
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return true;
    default:
      return false;
  }
}

size_t element_size(int type) {
  switch (type) {
    case TensorProto::UINT8:
    case TensorProto::INT8:
    case TensorProto::BOOL:
      return 1;
    case TensorProto::UINT16:
    case TensorProto::INT16:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return 2;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
    case TensorProto::UINT32:
      return 4;
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return 8;
    default:
      return 0;
  }
}

int64_t checked_elements(const TensorProto& tensor) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  int64_t count = 1;
  bool empty = false;
  for (const int64_t d : tensor.dims()) {
    if (d < 0) return -1;
    if (d == 0) {
      empty = true;
    } else if (count > kLimit / d) {
      return -1;
    } else {
      count *= d;
    }
  }
  return empty ? 0 : count;
}

namespace {

int64_t field_count(const TensorProto& t) {
  switch (t.data_type()) {
    case TensorProto::FLOAT:
      return t.float_data_size();
    case TensorProto::DOUBLE:
      return t.double_data_size();
    case TensorProto::INT64:
      return t.int64_data_size();
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return t.uint64_data_size();
    default:
      return t.int32_data_size();
  }
}

std::string shape_text(const TensorProto& t) {
  std::string text = "[";
  for (int i = 0; i < t.dims_size(); ++i) text += fmt::format("{}{}", i ? "," : "", t.dims(i));
  return text + "]";
}

uint64_t parse_number(const std::string& text, const TensorProto& tensor, const char* key) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc() || result.ptr != end)
    fail(StatusCode::invalid_model, "tensor '{}': external data has {} '{}', which is no whole number >= 0",
         tensor.name(), key, text);
  return value;
}

// `inside` must be `folder` or lie below it; both canonical.
bool lies_below(const fs::path& inside, const fs::path& folder) {
  auto part = inside.begin();
  for (const auto& wanted : folder) {
    if (part == inside.end() || *part != wanted) return false;
    ++part;
  }
  return true;
}

template <typename T>
T load(const std::string& raw, size_t i) {
  T value;
  std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
  return value;
}

double raw_real(const std::string& raw, int type, size_t i) {
  switch (type) {
    case TensorProto::FLOAT:
      return double(load<float>(raw, i));
    case TensorProto::DOUBLE:
      return load<double>(raw, i);
    case TensorProto::FLOAT16:
      return double(from_f16(load<uint16_t>(raw, i)));
    default:
      return double(from_bf16(load<uint16_t>(raw, i)));
  }
}

int64_t raw_integer(const std::string& raw, int type, size_t i) {
  switch (type) {
    case TensorProto::INT8:
      return load<int8_t>(raw, i);
    case TensorProto::UINT8:
      return load<uint8_t>(raw, i);
    case TensorProto::BOOL:
      return load<uint8_t>(raw, i) != 0;
    case TensorProto::INT16:
      return load<int16_t>(raw, i);
    case TensorProto::UINT16:
      return load<uint16_t>(raw, i);
    case TensorProto::INT32:
      return load<int32_t>(raw, i);
    case TensorProto::UINT32:
      return load<uint32_t>(raw, i);
    default:
      return load<int64_t>(raw, i);
  }
}

double field_real(const TensorProto& t, int i) {
  switch (t.data_type()) {
    case TensorProto::FLOAT:
      return double(t.float_data(i));
    case TensorProto::DOUBLE:
      return t.double_data(i);
    case TensorProto::FLOAT16:
      return double(from_f16(uint16_t(t.int32_data(i))));
    default:
      return double(from_bf16(uint16_t(t.int32_data(i))));
  }
}

int64_t field_integer(const TensorProto& t, int i) {
  switch (t.data_type()) {
    case TensorProto::INT64:
      return t.int64_data(i);
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return int64_t(t.uint64_data(i));
    default:
      return t.int32_data(i);
  }
}

void require_good(const TensorProto& tensor, const std::string& folder) {
  const std::string wrong = check_tensor(tensor, folder);
  if (!wrong.empty()) fail(StatusCode::invalid_model, "tensor '{}': {}", tensor.name(), wrong);
}

}  // namespace

bool is_external(const TensorProto& tensor) { return tensor.data_location() == TensorProto::EXTERNAL; }

ExternalData external_data(const TensorProto& tensor, const std::string& folder) {
  ExternalData data;
  bool has_length = false;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") data.location = entry.value();
    if (entry.key() == "offset") data.offset = parse_number(entry.value(), tensor, "offset");
    if (entry.key() == "length") {
      data.length = parse_number(entry.value(), tensor, "length");
      has_length = true;
    }
  }
  const std::string& name = tensor.name();
  if (data.location.empty())
    fail(StatusCode::invalid_model, "tensor '{}': external data without a location", name);
  const fs::path relative(data.location);
  bool climbs = relative.is_absolute();
  for (const auto& part : relative) climbs = climbs || part == "..";
  if (climbs)
    fail(StatusCode::invalid_model, "tensor '{}': external data location '{}' leaves the model's folder",
         name, data.location);
  std::error_code error;
  const fs::path joined = fs::path(folder) / relative;
  if (!fs::exists(joined, error))
    fail(StatusCode::not_found, "tensor '{}': external data file '{}' does not exist", name, joined.string());
  const fs::path resolved = fs::canonical(joined, error);
  if (error || !lies_below(resolved, folder))
    fail(StatusCode::invalid_model,
         "tensor '{}': external data location '{}' leads out of the model's folder", name, data.location);
  if (!fs::is_regular_file(resolved, error))
    fail(StatusCode::invalid_model, "tensor '{}': external data '{}' is no regular file", name,
         data.location);
  const uint64_t size = fs::file_size(resolved, error);
  if (error) fail(StatusCode::io, "cannot tell the size of '{}': {}", resolved.string(), error.message());
  if (data.offset > size || (has_length && data.length > size - data.offset))
    fail(StatusCode::invalid_model,
         "tensor '{}': external data at offset {} with length {} lies beyond the end of '{}' ({} bytes)",
         name, data.offset, has_length ? data.length : 0, data.location, size);
  const size_t width = element_size(tensor.data_type());
  const int64_t elements = checked_elements(tensor);
  const uint64_t needed = uint64_t(std::max<int64_t>(elements, 0)) * width;
  if (!has_length) data.length = size - data.offset;
  // Without a length the data run on to what another tensor needs, or to the end.
  if (!has_length && width > 0 && data.length > needed) data.length = needed;
  data.path = resolved.string();
  return data;
}

std::string read_external(const TensorProto& tensor, const std::string& folder) {
  const ExternalData data = external_data(tensor, folder);
  const int fd = open(data.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(StatusCode::io, "cannot open '{}': {}", data.path, std::strerror(errno));
  std::string bytes(data.length, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done, off_t(data.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += size_t(got);
  }
  close(fd);
  if (done != bytes.size()) fail(StatusCode::io, "cannot read all of '{}'", data.path);
  return bytes;
}

std::vector<TensorProto*> external_tensors(onnx::ModelProto& model) {
  std::vector<TensorProto*> list;
  if (!model.has_graph()) return list;
  auto& graph = *model.mutable_graph();
  for (auto& tensor : *graph.mutable_initializer())
    if (is_external(tensor)) list.push_back(&tensor);
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_t() && is_external(attribute.t())) list.push_back(attribute.mutable_t());
  return list;
}

std::string check_tensor(const TensorProto& t, const std::string& folder) {
  const int64_t elements = checked_elements(t);
  if (elements < 0) return fmt::format("shape {} is negative or too large", shape_text(t));
  const size_t width = element_size(t.data_type());
  if (width == 0) return {};  // an error where it is used, if it is
  if (t.has_segment()) return "data in segments, which nobody writes";
  const uint64_t needed = uint64_t(elements) * width;
  if (is_external(t) && !t.has_raw_data()) {
    const ExternalData data = external_data(t, folder);
    if (data.length != needed)
      return fmt::format("shape {} of {} needs {} bytes, its external data has {}", shape_text(t),
                         type_name(t.data_type()), needed, data.length);
    return {};
  }
  if (t.has_raw_data()) {
    if (t.raw_data().size() != needed)
      return fmt::format("shape {} of {} needs {} bytes, raw_data has {}", shape_text(t),
                         type_name(t.data_type()), needed, t.raw_data().size());
    return {};
  }
  if (field_count(t) != elements)
    return fmt::format("shape {} of {} needs {} elements, the file has {}", shape_text(t),
                       type_name(t.data_type()), elements, field_count(t));
  return {};
}

std::vector<double> decode_reals(const TensorProto& t, const std::string& folder) {
  require_good(t, folder);
  std::vector<double> values(size_t(checked_elements(t)));
  if (is_external(t) || t.has_raw_data()) {
    const bool held = t.has_raw_data();
    const std::string external = held ? std::string() : read_external(t, folder);
    const std::string& raw = held ? t.raw_data() : external;
    for (size_t i = 0; i < values.size(); ++i) values[i] = raw_real(raw, t.data_type(), i);
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = field_real(t, int(i));
  }
  return values;
}

std::vector<float> decode_floats(const TensorProto& t, const std::string& folder) {
  require_good(t, folder);
  std::vector<float> values(size_t(checked_elements(t)));
  if (is_external(t) || t.has_raw_data()) {
    const bool held = t.has_raw_data();
    const std::string external = held ? std::string() : read_external(t, folder);
    const std::string& raw = held ? t.raw_data() : external;
    if (t.data_type() == TensorProto::FLOAT) {
      if (!values.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    } else {
      for (size_t i = 0; i < values.size(); ++i) values[i] = float(raw_real(raw, t.data_type(), i));
    }
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(field_real(t, int(i)));
  }
  return values;
}

std::vector<int64_t> decode_integers(const TensorProto& t, const std::string& folder) {
  require_good(t, folder);
  std::vector<int64_t> values(size_t(checked_elements(t)));
  if (is_external(t) || t.has_raw_data()) {
    const bool held = t.has_raw_data();
    const std::string external = held ? std::string() : read_external(t, folder);
    const std::string& raw = held ? t.raw_data() : external;
    for (size_t i = 0; i < values.size(); ++i) values[i] = raw_integer(raw, t.data_type(), i);
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = field_integer(t, int(i));
  }
  return values;
}

std::string encode_raw(int type, std::span<const float> values) {
  std::string raw(values.size() * element_size(type), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    char* at = raw.data() + i * element_size(type);
    if (type == TensorProto::FLOAT) {
      std::memcpy(at, &values[i], 4);
    } else if (type == TensorProto::DOUBLE) {
      const double wide = double(values[i]);
      std::memcpy(at, &wide, 8);
    } else {
      const uint16_t half = type == TensorProto::FLOAT16 ? to_f16(values[i]) : to_bf16(values[i]);
      std::memcpy(at, &half, 2);
    }
  }
  return raw;
}

void encode_floats(TensorProto& t, std::span<const float> values) {
  const int type = t.data_type();
  if (t.has_raw_data()) {
    t.set_raw_data(encode_raw(type, values));
    return;
  }
  for (int i = 0; i < int(values.size()); ++i) {
    const float v = values[size_t(i)];
    if (type == TensorProto::FLOAT) {
      t.set_float_data(i, v);
    } else if (type == TensorProto::DOUBLE) {
      t.set_double_data(i, double(v));
    } else {
      t.set_int32_data(i, type == TensorProto::FLOAT16 ? to_f16(v) : to_bf16(v));
    }
  }
}

}  // namespace ren::importer
