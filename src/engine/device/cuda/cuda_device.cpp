// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/base/memory.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/convolution.h"

namespace ren::cuda {
namespace {

constexpr size_t kStagingBytes = 64 << 10;  // what a step reports fits; larger read-backs go directly
constexpr int kOldestMajor = 8;             // bf16 arithmetic and max.NaN begin with sm_80

class CudaBlock final : public DeviceBlock {
 public:
  explicit CudaBlock(uint64_t bytes) : buffer_(bytes), bytes_(bytes) {
    REN_CUDA_CHECK(cudaMemset(buffer_.data(), 0, bytes));
    REN_CUDA_CHECK(cudaDeviceSynchronize());
  }
  std::byte* base() const override { return buffer_.data(); }
  uint64_t bytes() const override { return bytes_; }

 private:
  DeviceBuffer buffer_;
  uint64_t bytes_;
};

// Events that stay readable when they are recorded within a captured graph.
class CudaStopwatch final : public Stopwatch {
 public:
  explicit CudaStopwatch(CudaDevice& device)
      : device_(device), start_(make_event(cudaEventDefault)), stop_(make_event(cudaEventDefault)) {}
  void start() noexcept override { record(start_); }
  void stop() noexcept override { record(stop_); }
  double seconds() override {
    float milliseconds = 0;
    REN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
    return double(milliseconds) * 1e-3;
  }

 private:
  void record(const Event& event) noexcept {
    const unsigned flags = device_.capturing() ? cudaEventRecordExternal : cudaEventRecordDefault;
    device_.record(cudaEventRecordWithFlags(event.get(), device_.stream(), flags), "cudaEventRecord");
  }
  CudaDevice& device_;
  Event start_, stop_;
};

int device_count() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    fail(StatusCode::not_found, "no NVIDIA driver is installed");
  if (status == cudaErrorInsufficientDriver)
    fail(StatusCode::device, "the NVIDIA driver is too old: it offers CUDA {}.{}, this build needs {}.{}",
         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    fail(StatusCode::not_found, "the NVIDIA driver sees no GPU");
  check(status, "cudaGetDeviceCount");
  return count;
}

}  // namespace

Event make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  REN_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

DeviceBuffer::DeviceBuffer(uint64_t bytes) {
  const cudaError_t status = cudaMalloc(&data_, std::max<uint64_t>(bytes, 1));
  if (status == cudaSuccess) return;
  cudaGetLastError();  // not sticky: the device stays usable
  if (status != cudaErrorMemoryAllocation) check(status, "cudaMalloc");
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  fail(StatusCode::out_of_memory, "the GPU cannot give {} bytes: {} of {} are free", bytes, free, total);
}

void DeviceBuffer::reset() noexcept {
  if (data_) cudaFree(data_);
  data_ = nullptr;
}

void* PinnedAllocator::allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail(StatusCode::out_of_memory, "no {} bytes of pinned memory: {}", bytes, cudaGetErrorString(status));
  }
  require(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0, "pinned memory is not aligned");
  return memory;
}

void PinnedAllocator::release(void* memory) noexcept { cudaFreeHost(memory); }

CudaDevice::CudaDevice(int index) : index_(index) {
  const int count = device_count();
  if (index < 0 || index >= count)
    fail(StatusCode::not_found, "there is no GPU {}: the driver sees {}", index, count);
  REN_CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  if (properties_.major < kOldestMajor)
    fail(StatusCode::unsupported, "{} has compute capability {}.{}; {}.0 is the oldest that works",
         properties_.name, properties_.major, properties_.minor, kOldestMajor);
  make_current();
  cudaStream_t stream = nullptr;
  REN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
  REN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  upload_stream_.reset(stream);
  uploaded_ = make_event();
  for (Event& done : program_done_) done = make_event();
  REN_CUDA_CHECK(cublasLtCreate(&blas_));
  kernels_ = std::make_unique<KernelCache>(fmt::format("sm_{}{}", properties_.major, properties_.minor),
                                           cache_folder());
  int driver = 0;
  cudaDriverGetVersion(&driver);
  identity_ = fmt::format("{} sm_{}{} x{} driver {} cublaslt {}", properties_.name, properties_.major,
                          properties_.minor, properties_.multiProcessorCount, driver, cublasLtGetVersion());
}

CudaDevice::CudaDevice(const Target& target) : index_(-1) {
  properties_.major = target.major;
  properties_.minor = target.minor;
  properties_.multiProcessorCount = target.processors;
  kernels_ = std::make_unique<KernelCache>(fmt::format("sm_{}{}", target.major, target.minor), "");
}

CudaDevice::~CudaDevice() {
  if (compiles_only()) return;
  cudaSetDevice(index_);
  cudaDeviceSynchronize();
  downloads_.clear();
  for (void* piece : staging_) cudaFreeHost(piece);
  convolutions_.reset();
  kernels_.reset();
  if (blas_) cublasLtDestroy(blas_);
}

void CudaDevice::make_current() const { REN_CUDA_CHECK(cudaSetDevice(index_)); }

std::string CudaDevice::name() const {
  return fmt::format("cuda:{} ({}, sm_{}{}, {} processors, {:.1f} GiB)", index_, properties_.name,
                     properties_.major, properties_.minor, properties_.multiProcessorCount,
                     double(properties_.totalGlobalMem) / double(1 << 30));
}

uint64_t CudaDevice::free_memory() const {
  make_current();
  size_t free = 0, total = 0;
  REN_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

std::unique_ptr<DeviceBlock> CudaDevice::allocate(uint64_t bytes) {
  make_current();
  return std::make_unique<CudaBlock>(bytes);
}

ConvolutionLibrary& CudaDevice::convolutions() {
  if (!convolutions_) convolutions_ = std::make_unique<ConvolutionLibrary>(*this);
  return *convolutions_;
}

// With two input slots an upload goes where the program before the last one read: it waits for that
// one, on the GPU, and runs beside the last. An event never recorded does not hold it up.
void CudaDevice::upload(std::byte* target, const void* host, size_t bytes) {
  make_current();
  REN_CUDA_CHECK(cudaStreamWaitEvent(upload_stream_.get(), program_done_[programs_ & 1].get()));
  REN_CUDA_CHECK(cudaMemcpyAsync(target, host, bytes, cudaMemcpyHostToDevice, upload_stream_.get()));
  REN_CUDA_CHECK(cudaEventRecord(uploaded_.get(), upload_stream_.get()));
  upload_pending_ = true;
}

void CudaDevice::before_launch() {
  if (!upload_pending_ || capturing_) return;
  REN_CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), uploaded_.get()));
  upload_pending_ = false;
}

void CudaDevice::after_program() {
  REN_CUDA_CHECK(cudaEventRecord(program_done_[programs_ & 1].get(), stream_.get()));
  ++programs_;
}

// Small pieces land in pinned memory first, since a copy to pageable memory would block the host.
uint64_t CudaDevice::download(void* host, const std::byte* source, size_t bytes) {
  make_current();
  before_launch();
  Download d{next_ticket_, nullptr, nullptr, nullptr, bytes};
  if (bytes <= kStagingBytes) {
    if (staging_.empty()) staging_.push_back(host_allocator_.allocate(kStagingBytes));
    d.host = host;
    d.staging = staging_.back();
    staging_.pop_back();
  }
  if (events_.empty()) events_.push_back(make_event());
  d.done = std::move(events_.back());
  events_.pop_back();
  downloads_.push_back(std::move(d));
  const Download& entry = downloads_.back();
  REN_CUDA_CHECK(cudaMemcpyAsync(entry.staging ? entry.staging : host, source, bytes, cudaMemcpyDeviceToHost,
                                 stream_.get()));
  REN_CUDA_CHECK(cudaEventRecord(entry.done.get(), stream_.get()));
  return next_ticket_++;
}

void CudaDevice::finish_downloads(uint64_t up_to, bool block) {
  while (!downloads_.empty() && downloads_.front().ticket <= up_to) {
    Download& d = downloads_.front();
    if (block) {
      REN_CUDA_CHECK(cudaEventSynchronize(d.done.get()));
    } else {
      const cudaError_t status = cudaEventQuery(d.done.get());
      if (status == cudaErrorNotReady) return;
      check(status, "cudaEventQuery");
    }
    if (d.staging) {
      std::memcpy(d.host, d.staging, d.bytes);
      staging_.push_back(d.staging);
    }
    done_ticket_ = d.ticket;
    events_.push_back(std::move(d.done));
    downloads_.pop_front();
  }
}

bool CudaDevice::ticket_done(uint64_t ticket) {
  make_current();
  finish_downloads(ticket, false);
  return done_ticket_ >= ticket;
}

void CudaDevice::wait(uint64_t ticket) {
  make_current();
  finish_downloads(ticket, true);
}

void CudaDevice::synchronize() {
  make_current();
  REN_CUDA_CHECK(cudaStreamSynchronize(upload_stream_.get()));
  REN_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  finish_downloads(next_ticket_, true);
  throw_failure();
}

std::unique_ptr<Stopwatch> CudaDevice::make_stopwatch() {
  make_current();
  return std::make_unique<CudaStopwatch>(*this);
}

void CudaDevice::record_failure(std::string reason) noexcept {
  if (failure_.empty()) failure_ = std::move(reason);
}

void CudaDevice::record(cudaError_t status, const char* call) noexcept try {
  if (status != cudaSuccess && failure_.empty())
    failure_ = fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
} catch (...) {
}

void CudaDevice::throw_failure() {
  if (failure_.empty()) return;
  const std::string reason = std::move(failure_);
  failure_.clear();
  throw Error(StatusCode::device, reason);
}

std::unique_ptr<Device> open_cuda_device(int index) { return std::make_unique<CudaDevice>(index); }

}  // namespace ren::cuda
