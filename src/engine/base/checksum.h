// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ren {

// CRC-32 as zip, PNG and gzip have it. Feed a long content in pieces: crc = crc32(crc, ...), from 0.
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);

// FNV-1a, 64 bits: tells names and contents apart that nobody chose to collide.
class Fnv64 {
 public:
  void add_bytes(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ uint8_t(c)) * 0x100000001B3u;
  }
  void add(std::string_view text) {
    add_bytes(text);
    add_bytes(std::string_view("", 1));  // so that "ab","c" and "a","bc" differ
  }
  std::string hex() const;  // 16 digits

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace ren
