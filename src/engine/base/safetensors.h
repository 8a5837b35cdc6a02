// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ren {

// The safetensors format (checkpoints and golden files): an 8-byte little-endian header
// length, a JSON header of {name: {dtype, shape, data_offsets}, "__metadata__": {..}},
// then the data. dtype is one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
struct SafeTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string_view data;  // inside the file's buffer (reading) or the caller's memory (writing)

  int64_t elements() const;
};

class SafeTensorsFile {
 public:
  // Reads and validates all of it: the checksum, if it has one, sizes, overlaps, bounds. Throws invalid_data,
  // io or not_found.
  static SafeTensorsFile read(const std::string& path);

  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafeTensor& at(const std::string& name) const;    // throws not_found
  const SafeTensor* find(const std::string& name) const;  // or nullptr
  std::string metadata_or(const std::string& key, const std::string& fallback) const;

  SafeTensorsFile() = default;
  SafeTensorsFile(SafeTensorsFile&&) = default;
  SafeTensorsFile& operator=(SafeTensorsFile&&) = default;

 private:
  std::string path_;
  std::unique_ptr<std::string> buffer_;  // its address must survive a move of this object
  std::map<std::string, SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Floating-point content as double or float, integers exactly as int64; throws invalid_data
// when the dtype doesn't fit.
std::vector<double> to_doubles(const SafeTensor& tensor);
std::vector<int64_t> to_int64(const SafeTensor& tensor);

// Written atomically, tensors in the map's (byte) order, data 64-byte aligned. with_checksum adds the
// metadata checksum=crc32:XXXXXXXX over the whole file, these eight digits taken as zeros.
void write_safetensors(const std::string& path, const std::map<std::string, SafeTensor>& tensors,
                       std::map<std::string, std::string> metadata, bool with_checksum = false);

}  // namespace ren
