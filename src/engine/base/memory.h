// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ren {

constexpr uint64_t kAlignment = 256;  // of every slot and every block

constexpr uint64_t align_up(uint64_t value, uint64_t alignment = kAlignment) {
  return (value + alignment - 1) / alignment * alignment;
}

struct AlignedDelete {
  void operator()(void* memory) const noexcept;
};
using AlignedBlock = std::unique_ptr<std::byte, AlignedDelete>;

// 256-byte aligned, zeroed; throws out_of_memory. Large blocks ask for huge pages.
AlignedBlock allocate_aligned(size_t bytes);

}  // namespace ren
