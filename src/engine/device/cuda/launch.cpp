// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/launch.h"

#include <algorithm>
#include <numeric>

#include "engine/device/cuda/check.h"

namespace ren::cuda {

Grid grid_for(const CudaDevice& device, int64_t items, int threads, int blocks_per_processor) {
  const int64_t wanted = (items + threads - 1) / threads;
  const int64_t most = int64_t(device.processors()) * blocks_per_processor;
  return {unsigned(std::clamp<int64_t>(wanted, 1, most))};
}

bool align_grid(Grid& grid, int64_t block, int64_t innermost) {
  const int64_t step = innermost / std::gcd(innermost, block);
  if (step > grid.x) return false;
  grid.x -= unsigned(grid.x % step);
  return true;
}

LaunchList::Step& LaunchList::Step::add_bytes(const void* bytes, size_t count) {
  const auto* begin = static_cast<const std::byte*>(bytes);
  arguments.emplace_back(begin, begin + count);
  return *this;
}

LaunchList::Step& LaunchList::kernel_of_pointers(std::shared_ptr<CompiledModule> module, std::string entry,
                                                 Grid grid, Grid block,
                                                 const std::vector<std::byte*>& pointers) {
  Step& step = steps_.emplace_back();
  step.module = std::move(module);
  step.entry = std::move(entry);
  step.grid = grid;
  step.block = block;
  for (std::byte* pointer : pointers) step.add(pointer);
  return step;
}

void LaunchList::call(std::function<void()> function) { steps_.emplace_back().call = std::move(function); }

void LaunchList::fill_zero(std::byte* target, uint64_t bytes) {
  call([this, target, bytes] { REN_CUDA_CHECK(cudaMemsetAsync(target, 0, bytes, device_.stream())); });
}

void LaunchList::copy(std::byte* target, const std::byte* source, uint64_t bytes) {
  call([this, target, source, bytes] {
    REN_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, device_.stream()));
  });
}

DeviceBuffer& LaunchList::own(DeviceBuffer buffer) {
  buffers_.push_back(std::move(buffer));
  return buffers_.back();
}

std::byte* LaunchList::counters(size_t count) {
  const DeviceBuffer& buffer = own(DeviceBuffer(count * sizeof(unsigned)));
  REN_CUDA_CHECK(cudaMemsetAsync(buffer.data(), 0, count * sizeof(unsigned), device_.stream()));
  return buffer.data();
}

const std::byte* LaunchList::upload_table(const void* rows, size_t bytes) {
  const DeviceBuffer& buffer = own(DeviceBuffer(bytes));
  // A copy from pageable memory may still be on its way when it returns, and no stream of ours waits for it.
  REN_CUDA_CHECK(cudaMemcpyAsync(buffer.data(), rows, bytes, cudaMemcpyHostToDevice, device_.stream()));
  REN_CUDA_CHECK(cudaStreamSynchronize(device_.stream()));
  return buffer.data();
}

void LaunchList::launch_kernel(Step& step) {
  if (!step.function) {
    step.function = step.module->kernel(step.entry);
    for (auto& argument : step.arguments) step.pointers.push_back(argument.data());
  }
  check(cudaLaunchKernel(reinterpret_cast<const void*>(step.function), step.grid.dim(), step.block.dim(),
                         step.pointers.data(), 0, device_.stream()),
        step.entry.c_str());
}

// Only the first launch can throw (a kernel that does not compile or load); it is made before capture.
void LaunchList::launch() noexcept try {
  device_.before_launch();
  for (Step& step : steps_) {
    if (step.call)
      step.call();
    else
      launch_kernel(step);
  }
} catch (const std::exception& e) {
  device_.record_failure(e.what());
}

}  // namespace ren::cuda
