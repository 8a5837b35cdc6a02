// SPDX-License-Identifier: Apache-2.0
#include "engine/base/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "engine/base/batch_source.h"
#include "engine/base/status.h"

namespace ren {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

class PlainHostAllocator final : public HostAllocator {
 public:
  void* allocate(size_t bytes) override { return allocate_aligned(bytes).release(); }
  void release(void* memory) noexcept override { AlignedDelete()(static_cast<std::byte*>(memory)); }
};

}  // namespace

void AlignedDelete::operator()(void* memory) const noexcept { std::free(memory); }

AlignedBlock allocate_aligned(size_t bytes) {
  const bool large = bytes >= 8 * kHugePage;
  const size_t alignment = large ? kHugePage : kAlignment;
  const size_t size = align_up(bytes == 0 ? 1 : bytes, alignment);
  void* memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) fail(StatusCode::out_of_memory, "cannot allocate {} bytes of host memory", size);
  // Fewer page faults and TLB misses; the kernel may decline.
  if (large) madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return AlignedBlock(static_cast<std::byte*>(memory));
}

HostAllocator& default_host_allocator() {
  static PlainHostAllocator allocator;
  return allocator;
}

}  // namespace ren
