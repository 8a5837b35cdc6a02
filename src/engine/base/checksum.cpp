// SPDX-License-Identifier: Apache-2.0
#include "engine/base/checksum.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace ren {
namespace {

// table[k][b]: the remainder of byte b followed by k zero bytes. Eight bytes are taken at a time.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t r = b;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ (r & 1 ? 0xEDB88320u : 0);
    tables[0][b] = r;
  }
  for (size_t k = 1; k < tables.size(); ++k)
    for (uint32_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 255];
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t r = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= r;
    r = kTables[7][low & 255] ^ kTables[6][low >> 8 & 255] ^ kTables[5][low >> 16 & 255] ^
        kTables[4][low >> 24] ^ kTables[3][high & 255] ^ kTables[2][high >> 8 & 255] ^
        kTables[1][high >> 16 & 255] ^ kTables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++p) r = (r >> 8) ^ kTables[0][(r ^ *p) & 255];
  return ~r;
}

std::string Fnv64::hex() const { return fmt::format("{:016x}", value_); }

}  // namespace ren
