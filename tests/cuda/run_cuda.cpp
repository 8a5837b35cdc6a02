// SPDX-License-Identifier: Apache-2.0
#include "cuda/run_cuda.h"

#include <gtest/gtest.h>
#include <algorithm>

#include <cmath>
#include <cstring>

#include "engine/base/half.h"
#include "engine/base/status.h"
#include "engine/ops/cuda_module.h"

extern "C" const ren::Backend* ren_cuda_backend(int abi);

namespace ren::test {
namespace {

constexpr size_t kGuard = 512;  // slots of the engine are 256-byte aligned, and so is a tensor here

std::vector<std::byte> encode(const Values& values, DType type) {
  std::vector<std::byte> raw(bytes_of(type, values.size()));
  if (type == DType::f32 || is_16bit(type)) {
    const std::vector<float> floats(values.begin(), values.end());
    convert_from_f32(floats.data(), type, raw.data(), floats.size());
    return raw;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::b1) {
      raw[i / 8] |= std::byte((values[i] != 0) << (i % 8));
      continue;
    }
    const int32_t v = int32_t(values[i]);
    std::memcpy(raw.data() + i * size_of(type), &v, size_of(type));  // little-endian: the low bytes
  }
  return raw;
}

Values decode(const std::byte* raw, int64_t count, DType type) {
  Values values(static_cast<size_t>(count));
  if (type == DType::f32 || is_16bit(type)) {
    std::vector<float> floats(values.size());
    convert_to_f32(raw, type, floats.data(), floats.size());
    return Values(floats.begin(), floats.end());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::i32) values[i] = reinterpret_cast<const int32_t*>(raw)[i];
    if (type == DType::b1) values[i] = int(raw[i / 8]) >> (i % 8) & 1;
    if (type == DType::u8) values[i] = reinterpret_cast<const uint8_t*>(raw)[i];
    if (type == DType::i8) values[i] = reinterpret_cast<const int8_t*>(raw)[i];
  }
  return values;
}

void put(Device& device, std::byte* target, const std::vector<std::byte>& raw) {
  device.upload(target, raw.data(), raw.size());
  device.synchronize();
}

}  // namespace

Device* test_gpu(std::string& why) {
  static std::string reason;
  static const std::unique_ptr<Device> device = []() -> std::unique_ptr<Device> {
    try {
      return ren_cuda_backend(module_abi())->open(0);
    } catch (const Error& e) {
      reason = e.what();
      return nullptr;
    }
  }();
  why = reason;
  return device.get();
}

DeviceTensors::DeviceTensors(Device& device, const Case& test) : device_(device), test_(test) {
  for (size_t i = 0; i < test.graph.tensors.size(); ++i) {
    const Tensor& t = test.graph.tensors[i];
    if (t.alias_of != kNoTensor) continue;
    const size_t bytes = bytes_of(t.dtype, uint64_t(t.shape.elements()));
    blocks_[TensorId(i)] = device.allocate(bytes + 2 * kGuard);
  }
  write_inputs();
}

std::byte* DeviceTensors::address(TensorId id) const {
  return id == kNoTensor ? nullptr : blocks_.at(test_.graph.storage(id))->base() + kGuard;
}

void DeviceTensors::write_inputs() {
  for (const auto& [id, block] : blocks_) {
    std::vector<std::byte> raw(block->bytes(), std::byte{0xFF});  // NaN in every float format
    const auto values = test_.given.find(id);
    if (values != test_.given.end()) {
      const auto bytes = encode(values->second, test_.graph.at(id).dtype);
      std::copy(bytes.begin(), bytes.end(), raw.begin() + kGuard);
    }
    put(device_, block->base(), raw);
  }
}

std::map<TensorId, Values> DeviceTensors::read() const {
  std::map<TensorId, Values> values;
  for (const auto& [id, block] : blocks_) {
    const Tensor& t = test_.graph.at(id);
    std::vector<std::byte> raw(block->bytes());
    device_.wait(device_.download(raw.data(), block->base(), raw.size()));
    const auto intact = [&](size_t begin) {
      for (size_t i = begin; i < begin + kGuard; ++i)
        if (raw[i] != std::byte{0xFF}) return false;
      return true;
    };
    EXPECT_TRUE(intact(0) && intact(raw.size() - kGuard)) << "written beyond " << t.name;
    values[id] = decode(raw.data() + kGuard, t.shape.elements(), t.dtype);
  }
  device_.synchronize();
  return values;
}

BoundCase bind_case(Device& device, const Case& test, const DeviceTensors& tensors, Chosen chosen) {
  BoundCase bound;
  for (const Node& node : test.graph.nodes) {
    const OpBackend* kernels = ren_cuda_backend(module_abi())->kernels(node.op);
    require(kernels != nullptr, "{} has no CUDA kernel", name_of(node.op));
    NodeChoice choice =
        kernels->prepare({test.graph, node, device, chosen == Chosen::deterministic, chosen == Chosen::tf32});
    const bool library = choice.engine.rfind("cudnn", 0) == 0 || choice.engine.rfind("cublas", 0) == 0;
    // Sums of a convolution's output need some workspace in any form.
    if (chosen == Chosen::own && library)
      choice = {"own:direct", std::max<uint64_t>(choice.workspace_bytes, 1 << 20), {0, 0}};
    bound.workspaces.push_back(device.allocate(choice.workspace_bytes));
    std::vector<std::byte*> inputs, outputs;
    for (const TensorId id : node.inputs) inputs.push_back(tensors.address(id));
    for (const TensorId id : node.outputs) outputs.push_back(tensors.address(id));
    bound.kernels.push_back(kernels->bind(
        {test.graph, node, choice, device, inputs, outputs, bound.workspaces.back()->base(), {}, {}}));
    bound.choices.push_back(choice);
  }
  return bound;
}

}  // namespace ren::test
