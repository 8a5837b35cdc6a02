// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/cuda/cuda_device.h"

namespace ren::cuda {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
  dim3 dim() const { return dim3(x, y, z); }
};

// Blocks of `threads` for so many items, a grid-stride loop behind them: enough to fill the GPU,
// no more than there are items.
Grid grid_for(const CudaDevice& device, int64_t items, int threads, int blocks_per_processor = 8);

// Fewer blocks, such that a thread that goes on by all of the grid's elements, `block` of each block, stays
// at one place in runs of `innermost` neighbours; false where that takes more blocks than there are.
bool align_grid(Grid& grid, int64_t block, int64_t innermost);

// A bound node of this backend: kernels of our own, fills and copies, in order.
class LaunchList final : public Kernel {
 public:
  explicit LaunchList(Device& device) : device_(cuda_device(device)) {}

  // One launch, being described. Arguments are copied byte for byte: pointers, numbers and structs as
  // the kernel declares them.
  struct Step {
    std::shared_ptr<CompiledModule> module;
    std::string entry;
    Grid grid, block;
    std::vector<std::vector<std::byte>> arguments;
    std::function<void()> call;       // instead of a kernel
    cudaKernel_t function = nullptr;  // known from the first launch on
    std::vector<void*> pointers;

    template <typename T>
    Step& add(const T& value) {
      static_assert(std::is_trivially_copyable_v<T>);
      return add_bytes(&value, sizeof(T));
    }
    // A struct of so many pointers.
    Step& add_array(const std::vector<std::byte*>& values) {
      return add_bytes(values.data(), values.size() * sizeof(std::byte*));
    }
    Step& add_bytes(const void* bytes, size_t count);
  };

  template <typename... Args>
  Step& kernel(std::shared_ptr<CompiledModule> module, std::string entry, Grid grid, Grid block,
               const Args&... args) {
    Step& step = kernel_of_pointers(std::move(module), std::move(entry), grid, block, {});
    (step.add(args), ...);
    return step;
  }
  Step& kernel_of_pointers(std::shared_ptr<CompiledModule> module, std::string entry, Grid grid, Grid block,
                           const std::vector<std::byte*>& pointers);
  void fill_zero(std::byte* target, uint64_t bytes);
  void copy(std::byte* target, const std::byte* source, uint64_t bytes);
  // Anything else that enqueues on the device's stream; false: it has recorded the failure.
  void call(std::function<void()> function);
  DeviceBuffer& own(DeviceBuffer buffer);  // lives as long as the launches
  // So many counters of 32 bits that begin at zero; kernels leave them so.
  std::byte* counters(size_t count);
  // A table in device memory of its own.
  template <typename T>
  const std::byte* table(const std::vector<T>& rows) {
    return upload_table(rows.data(), rows.size() * sizeof(T));
  }

  void launch() noexcept override;

 private:
  const std::byte* upload_table(const void* rows, size_t bytes);
  void launch_kernel(Step& step);

  CudaDevice& device_;
  std::deque<Step> steps_;  // references to steps stay good
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace ren::cuda
