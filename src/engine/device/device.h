// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/batch_source.h"

namespace ren {

enum class DeviceKind : uint8_t { cpu, cuda };

// One bound launch: addresses resolved, everything allocated. Launching never throws,
// allocates or waits; on a GPU it enqueues on the device's compute stream, so it can be
// captured. A device failure shows at the next synchronize().
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void launch() noexcept = 0;
};

// Measures what lies between two points of a program; put into it like a kernel.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void start() noexcept = 0;
  virtual void stop() noexcept = 0;
  virtual double seconds() = 0;  // of the last run; after synchronize()
};

// A whole variant, ready to run: a list on a CPU, one captured graph on a GPU.
class Program {
 public:
  virtual ~Program() = default;
  virtual void run() = 0;  // enqueues; throws `device` when the launch itself fails
};

// The one block of device memory that an engine has; 256-byte aligned, zeroed.
class DeviceBlock {
 public:
  virtual ~DeviceBlock() = default;
  virtual std::byte* base() const = 0;  // an address of the device
  virtual uint64_t bytes() const = 0;
};

// A CPU or one GPU: memory, transfers, order. Used by one thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;      // "cpu (AMD EPYC, avx512_core, 2 threads)"
  virtual uint64_t free_memory() const = 0;  // bytes that allocate() could give now
  virtual std::unique_ptr<DeviceBlock> allocate(uint64_t bytes) = 0;  // throws out_of_memory
  virtual HostAllocator& host_allocator() = 0;                        // pinned where that helps uploads

  // Ordered with launches: an upload begun now is seen by what is launched later, and waits
  // for nothing but earlier use of the same slot (the caller's business: two slots).
  virtual void upload(std::byte* target, const void* host, size_t bytes) = 0;
  // Begins to read back after everything launched so far; complete after synchronize() or
  // when `ticket_done` says so.
  virtual uint64_t download(void* host, const std::byte* source, size_t bytes) = 0;
  virtual bool ticket_done(uint64_t ticket) = 0;
  virtual void wait(uint64_t ticket) = 0;
  virtual void synchronize() = 0;  // throws `device` on any earlier failure
  virtual std::unique_ptr<Stopwatch> make_stopwatch() = 0;

  // Makes a program of bound kernels. Nothing runs yet: memory stays as it is.
  virtual std::unique_ptr<Program> make_program(std::vector<std::unique_ptr<Kernel>> kernels) = 0;
};

}  // namespace ren
