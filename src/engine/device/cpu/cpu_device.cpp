// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cpu/cpu_device.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "engine/base/memory.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

#if defined(REN_OPENMP)
#include <omp.h>
#endif

namespace ren {
namespace {

class CpuBlock final : public DeviceBlock {
 public:
  explicit CpuBlock(uint64_t bytes) : memory_(allocate_aligned(size_t(bytes))), bytes_(bytes) {}
  std::byte* base() const override { return memory_.get(); }
  uint64_t bytes() const override { return bytes_; }

 private:
  AlignedBlock memory_;
  uint64_t bytes_;
};

class CpuStopwatch final : public Stopwatch {
 public:
  void start() noexcept override { start_ = Clock::now(); }
  void stop() noexcept override { stop_ = Clock::now(); }
  double seconds() override { return std::chrono::duration<double>(stop_ - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_, stop_;
};

class CpuProgram final : public Program {
 public:
  explicit CpuProgram(std::vector<std::unique_ptr<Kernel>> kernels) : kernels_(std::move(kernels)) {}
  void run() override {
    CpuDevice::use_compute_threads();
    for (const auto& kernel : kernels_) kernel->launch();
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

// The value of the first line "key : value" of a file below /proc.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? std::string() : line.substr(first);
  }
  return {};
}

const char* isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx2_vnni_2:
      return "avx2_vnni_2";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_fp16:
      return "avx512_core_fp16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      return "avx512_core_amx_fp16";
    default:
      return "generic";
  }
}

}  // namespace

CpuDevice::CpuDevice() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) { use_compute_threads(); }

void CpuDevice::use_compute_threads() noexcept {
#if defined(REN_OPENMP)
  const int threads = compute_threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#endif
}

std::string CpuDevice::name() const {
  const std::string model = proc_value("/proc/cpuinfo", "model name");
  const int threads = compute_threads();
  return fmt::format("cpu ({}, {}, {} thread{})", model.empty() ? "unknown" : model, isa_name(), threads,
                     threads == 1 ? "" : "s");
}

uint64_t CpuDevice::free_memory() const {
  const std::string kilobytes = proc_value("/proc/meminfo", "MemAvailable");
  if (!kilobytes.empty()) return std::strtoull(kilobytes.c_str(), nullptr, 10) * 1024;
  return uint64_t(sysconf(_SC_AVPHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
}

std::unique_ptr<DeviceBlock> CpuDevice::allocate(uint64_t bytes) { return std::make_unique<CpuBlock>(bytes); }

void CpuDevice::upload(std::byte* target, const void* host, size_t bytes) {
  std::memcpy(target, host, bytes);
}

uint64_t CpuDevice::download(void* host, const std::byte* source, size_t bytes) {
  std::memcpy(host, source, bytes);
  return 0;
}

void CpuDevice::report_failure(const char* kernel, const char* reason) noexcept {
  if (failed_.exchange(true)) return;
  std::snprintf(failure_, sizeof failure_, "%s failed: %s", kernel, reason);
}

std::unique_ptr<Stopwatch> CpuDevice::make_stopwatch() { return std::make_unique<CpuStopwatch>(); }

void CpuDevice::synchronize() {
  if (failed_.exchange(false)) throw Error(StatusCode::device, failure_);
}

std::unique_ptr<Program> CpuDevice::make_program(std::vector<std::unique_ptr<Kernel>> kernels) {
  return std::make_unique<CpuProgram>(std::move(kernels));
}

std::unique_ptr<Device> open_cpu_device() {
  set_compute_threads(compute_threads());  // oneDNN's parallel regions follow
  return std::make_unique<CpuDevice>();
}

}  // namespace ren
