// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ren {

// Element types a tensor can have inside the engine. FP64 exists in the reference only. b1 is a truth
// value, eight neighbours of a row of channels in a byte, the first in its lowest bit.
enum class DType : uint8_t { f32, f16, bf16, i32, i8, u8, b1 };

// Bytes of one element; of b1 the unit that is addressed. bytes_of() gives what many take.
constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::b1:
      return 1;
  }
  return 0;
}

constexpr uint64_t bytes_of(DType type, uint64_t elements) {
  return type == DType::b1 ? (elements + 7) / 8 : elements * size_of(type);
}

constexpr bool is_16bit(DType type) { return type == DType::f16 || type == DType::bf16; }

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::b1:
      return "b1";
  }
  return "?";
}

}  // namespace ren
