// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/support/kernel.h"

namespace ren {

// What the kernels that oneDNN computes have in common: operands whose dtype or layout the
// primitive doesn't take are converted through the workspace.

dnnl::memory::data_type onednn_type(DType type);
// Whether oneDNN has fast primitives for a 16-bit type on this processor.
bool onednn_computes(DType type);

// One tensor of a primitive: as it lies in memory, and as the primitive wants it.
struct OneDnnOperand {
  int argument = 0;  // DNNL_ARG_...
  bool output = false;
  DType stored_type = DType::f32;  // in memory
  dnnl::memory::desc stored;       // memory's layout in the type that the primitive computes in
  dnnl::memory::desc wanted;       // the primitive's
  std::byte* address = nullptr;    // set by bind
};

// A primitive with its operands: what prepare measures and bind turns into a kernel.
class OneDnnPlan {
 public:
  OneDnnPlan(CpuDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

  std::vector<OneDnnOperand> operands;
  dnnl::primitive_desc description;

  NodeChoice choice() const;
  std::unique_ptr<Kernel> bind(std::byte* workspace) const;

 private:
  bool converts(const OneDnnOperand& o) const;  // 16 bits stored, FP32 computed
  uint64_t scratchpad_bytes() const;
  bool reorders(const OneDnnOperand& o) const { return o.stored != o.wanted; }

  CpuDevice& device_;
  std::string name_;
};

// oneDNN's reference loops are thousands of times slower than its other implementations.
bool is_reference(const char* implementation);
constexpr double kTinyOperations = 1 << 20;  // about ten milliseconds in a reference loop
[[noreturn]] void fail_slow(const std::string& what);

// Takes the first implementation that isn't a reference loop. `operations` (multiply-adds)
// decides whether the work is so small that even that loop will do; else throws unsupported.
template <typename Description>
void choose_implementation(Description& description, double operations, const std::string& what) {
  while (is_reference(description.impl_info_str()))
    if (!description.next_impl()) {
      if (operations > kTinyOperations) fail_slow(what);
      return;
    }
}

}  // namespace ren
