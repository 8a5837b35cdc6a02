// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cuda/kernel_cache.h"
#include "engine/device/device.h"

namespace ren::cuda {

class ConvolutionLibrary;

// Owners of CUDA's handles.
struct StreamDelete {
  void operator()(cudaStream_t s) const noexcept { cudaStreamDestroy(s); }
};
struct EventDelete {
  void operator()(cudaEvent_t e) const noexcept { cudaEventDestroy(e); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDelete>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDelete>;
Event make_event(unsigned flags = cudaEventDisableTiming);

// Device memory outside of the arena: tables of bound kernels, room to measure in.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(uint64_t bytes);  // throws out_of_memory
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { std::swap(data_, other.data_); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void reset() noexcept;

 private:
  void* data_ = nullptr;
};

// Memory that the GPU reads directly; `release` takes what `allocate` gave.
class PinnedAllocator final : public HostAllocator {
 public:
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;
};

// One GPU: a stream for kernels, one for uploads, the libraries' handles and the kernel cache.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);  // throws not_found or device
  // Stands for a GPU that isn't there: `prepare` compiles for it, nothing else works.
  struct Target {
    int major, minor, processors;
  };
  explicit CudaDevice(const Target& target);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override;
  uint64_t free_memory() const override;
  std::unique_ptr<DeviceBlock> allocate(uint64_t bytes) override;
  HostAllocator& host_allocator() override { return host_allocator_; }
  void upload(std::byte* target, const void* host, size_t bytes) override;
  uint64_t download(void* host, const std::byte* source, size_t bytes) override;
  bool ticket_done(uint64_t ticket) override;
  void wait(uint64_t ticket) override;
  void synchronize() override;
  std::unique_ptr<Stopwatch> make_stopwatch() override;
  std::unique_ptr<Program> make_program(std::vector<std::unique_ptr<Kernel>> kernels) override;

  // For kernels of this backend.
  cudaStream_t stream() const { return stream_.get(); }
  KernelCache& kernels() { return *kernels_; }
  cublasLtHandle_t blas() const { return blas_; }
  ConvolutionLibrary& convolutions();  // made when first asked for
  const cudaDeviceProp& properties() const { return properties_; }
  const std::string& identity() const {
    return identity_;
  }  // model and library versions: key of measured choices
  bool compiles_only() const { return !stream_; }
  int processors() const { return properties_.multiProcessorCount; }
  // The first failure of a launch is kept and thrown by the next synchronize().
  void record_failure(std::string reason) noexcept;
  void record(cudaError_t status, const char* call) noexcept;
  void throw_failure();
  // Before a launch: the compute stream waits for uploads begun, but within a capture, which is no launch.
  void before_launch();
  void after_program();  // remembers where this program ends, for uploads into the slot that it read
  bool capturing() const { return capturing_; }
  void set_capturing(bool capturing) { capturing_ = capturing; }

 private:
  struct Download {
    uint64_t ticket;
    Event done;
    void* host;  // where the staged bytes go; nullptr when they went there directly
    void* staging;
    size_t bytes;
  };
  void make_current() const;
  void finish_downloads(uint64_t up_to, bool block);

  int index_;
  cudaDeviceProp properties_{};
  std::string identity_;
  Stream stream_, upload_stream_;
  Event uploaded_;
  bool upload_pending_ = false, capturing_ = false;
  Event program_done_[2];  // of the last two programs
  uint64_t programs_ = 0;
  PinnedAllocator host_allocator_;
  cublasLtHandle_t blas_ = nullptr;
  std::unique_ptr<KernelCache> kernels_;
  std::unique_ptr<ConvolutionLibrary> convolutions_;
  std::deque<Download> downloads_;
  std::vector<void*> staging_;  // free pieces of kStagingBytes
  std::vector<Event> events_;   // free ones
  uint64_t next_ticket_ = 1, done_ticket_ = 0;
  std::string failure_;
};

std::unique_ptr<Device> open_cuda_device(int index);
inline CudaDevice& cuda_device(Device& device) { return static_cast<CudaDevice&>(device); }

}  // namespace ren::cuda
