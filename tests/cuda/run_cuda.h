// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ops/harness.h"

namespace ren::test {

// The first GPU, opened once for all tests, or nullptr with the reason in `why`.
Device* test_gpu(std::string& why);

// Every tensor of a case in device memory of its own, guarded on both sides; outputs begin as NaN.
class DeviceTensors {
 public:
  DeviceTensors(Device& device, const Case& test);
  std::byte* address(TensorId id) const;
  void write_inputs();                      // what the case gives, as at the start
  std::map<TensorId, Values> read() const;  // also checks the guards

 private:
  Device& device_;
  const Case& test_;
  std::map<TensorId, std::unique_ptr<DeviceBlock>> blocks_;
};

// Which kernels: the fastest measured, those that a deterministic training takes, those of TF32, or our own
// for convolutions and products instead of a library's.
enum class Chosen { measured, deterministic, tf32, own };

// The kernels of a case, bound.
struct BoundCase {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::unique_ptr<DeviceBlock>> workspaces;
  std::vector<NodeChoice> choices;
};
BoundCase bind_case(Device& device, const Case& test, const DeviceTensors& tensors, Chosen chosen);

#define REN_NEED_GPU(device)                   \
  std::string why_no_gpu;                      \
  Device* const device = test_gpu(why_no_gpu); \
  if (device == nullptr) GTEST_SKIP() << "no GPU: " << why_no_gpu

}  // namespace ren::test
