// SPDX-License-Identifier: Apache-2.0
#include "engine/base/checksum.h"

#include <fmt/format.h>
#include <zlib.h>

namespace ren {

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
  return uint32_t(::crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

std::string Fnv64::hex() const { return fmt::format("{:016x}", value_); }

}  // namespace ren
