// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "engine/device/device.h"

namespace ren {

// The processors this process may run on. Everything happens when it is called: launches
// run to their end, transfers are copies, so tickets are always done.
class CpuDevice final : public Device {
 public:
  CpuDevice();

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override;
  uint64_t free_memory() const override;
  std::unique_ptr<DeviceBlock> allocate(uint64_t bytes) override;
  HostAllocator& host_allocator() override { return default_host_allocator(); }
  void upload(std::byte* target, const void* host, size_t bytes) override;
  uint64_t download(void* host, const std::byte* source, size_t bytes) override;
  bool ticket_done(uint64_t) override { return true; }
  void wait(uint64_t) override {}
  void synchronize() override;
  std::unique_ptr<Stopwatch> make_stopwatch() override;
  std::unique_ptr<Program> make_program(std::vector<std::unique_ptr<Kernel>> kernels) override;

  // ---- For kernels -------------------------------------------------------------------------
  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }
  // OpenMP's thread count belongs to the calling thread; this sets it to compute_threads(),
  // which oneDNN reads when a primitive is made and when it runs.
  static void use_compute_threads() noexcept;
  // A kernel that failed says so; the first text is what synchronize() throws.
  void report_failure(const char* kernel, const char* reason) noexcept;

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::atomic<bool> failed_{false};
  char failure_[256] = {};
};

std::unique_ptr<Device> open_cpu_device();

}  // namespace ren
