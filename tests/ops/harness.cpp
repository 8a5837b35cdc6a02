// SPDX-License-Identifier: Apache-2.0
#include "harness.h"
#include "engine/base/threads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "engine/base/half.h"
#include "engine/base/memory.h"
#include "engine/device/cpu/cpu_device.h"

// Counts allocations, so that launches can be seen to make none.
namespace {
std::atomic<int64_t> g_allocations{0};
}

// gcc pairs the calls of the replaced operators with malloc and free only where it sees both.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t bytes) {
  ++g_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ren::test {
namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;

void write_value(std::byte* at, size_t i, DType type, double value) {
  switch (type) {
    case DType::f32:
      reinterpret_cast<float*>(at)[i] = float(value);
      break;
    case DType::f16:
      reinterpret_cast<uint16_t*>(at)[i] = to_f16(float(value));
      break;
    case DType::bf16:
      reinterpret_cast<uint16_t*>(at)[i] = to_bf16(float(value));
      break;
    case DType::i32:
      reinterpret_cast<int32_t*>(at)[i] = int32_t(value);
      break;
    case DType::i8:
      reinterpret_cast<int8_t*>(at)[i] = int8_t(value);
      break;
    case DType::u8:
      reinterpret_cast<uint8_t*>(at)[i] = uint8_t(value);
      break;
    case DType::b1: {
      const auto bit = std::byte(1 << (i % 8));
      at[i / 8] = value != 0 ? at[i / 8] | bit : at[i / 8] & ~bit;
      break;
    }
  }
}

double read_value(const std::byte* at, size_t i, DType type) {
  switch (type) {
    case DType::f32:
      return double(reinterpret_cast<const float*>(at)[i]);
    case DType::f16:
      return double(from_f16(reinterpret_cast<const uint16_t*>(at)[i]));
    case DType::bf16:
      return double(from_bf16(reinterpret_cast<const uint16_t*>(at)[i]));
    case DType::i32:
      return reinterpret_cast<const int32_t*>(at)[i];
    case DType::i8:
      return reinterpret_cast<const int8_t*>(at)[i];
    case DType::u8:
      return reinterpret_cast<const uint8_t*>(at)[i];
    case DType::b1:
      return int(at[i / 8]) >> (i % 8) & 1;
  }
  return 0;
}

// Memory with guard bytes on both sides.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), block_(allocate_aligned(bytes + 2 * kGuard + kAlignment)) {
    std::memset(block_.get(), 0xFF, bytes + 2 * kGuard);  // NaN in every float format
    std::memset(block_.get(), kGuardByte, kGuard);
    std::memset(end(), kGuardByte, kGuard);
  }
  std::byte* data() { return block_.get() + kGuard; }
  bool intact() {
    for (size_t i = 0; i < kGuard; ++i)
      if (block_.get()[i] != std::byte{kGuardByte} || end()[i] != std::byte{kGuardByte}) return false;
    return true;
  }

 private:
  std::byte* end() { return block_.get() + kGuard + bytes_; }
  size_t bytes_;
  AlignedBlock block_;
};

}  // namespace

double stored(double value, DType type) {
  std::byte bytes[8];
  write_value(bytes, 0, type, value);
  return read_value(bytes, 0, type);
}

Values random_values(int64_t count, uint64_t seed, double low, double high) {
  RandomStream random(seed, 1, 0);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = low + (high - low) * double(random.uniform());
  return values;
}

Values random_integers(int64_t count, uint64_t seed, int64_t below) {
  RandomStream random(seed, 2, 0);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = double(random.below(uint32_t(below)));
  return values;
}

TensorId Case::input(const std::string& name, Shape shape, DType type, Values values, Region region) {
  EXPECT_EQ(int64_t(values.size()), shape.elements()) << name;
  const TensorId id = builder.tensor(name, {shape, type}, region);
  for (double& v : values) v = stored(v, type);
  given[id] = std::move(values);
  return id;
}

std::vector<TensorId> Case::add(Op op, std::vector<TensorId> inputs, AttributesPtr attributes) {
  return emit(builder, op, name_of(op), std::move(inputs), std::move(attributes));
}

std::map<TensorId, Values> Case::run_reference() const {
  std::map<TensorId, Values> values = given;
  for (const Node& node : graph.nodes) {
    ReferenceCall call{graph, node, {}, {}, nullptr};
    for (const TensorId id : node.outputs)
      if (id != kNoTensor) values[id].resize(size_t(graph.at(id).shape.elements()));
    for (const TensorId id : node.inputs) {
      if (id != kNoTensor && values.count(id) == 0) values[id].resize(size_t(graph.at(id).shape.elements()));
      call.inputs.push_back(id == kNoTensor ? nullptr : &values[id]);
    }
    for (const TensorId id : node.outputs) call.outputs.push_back(id == kNoTensor ? nullptr : &values[id]);
    definition_of(node.op).reference(call);
  }
  return values;
}

std::map<TensorId, Values> Case::run_cpu() const {
  const auto device = open_cpu_device();
  std::map<TensorId, Guarded> memory;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.alias_of != kNoTensor) continue;
    auto [slot, _] = memory.try_emplace(TensorId(i), bytes_of(t.dtype, uint64_t(t.shape.elements())));
    const auto values = given.find(TensorId(i));
    if (values == given.end()) continue;
    for (size_t e = 0; e < values->second.size(); ++e)
      write_value(slot->second.data(), e, t.dtype, values->second[e]);
  }
  const auto address = [&](TensorId id) {
    return id == kNoTensor ? nullptr : memory.at(graph.storage(id)).data();
  };
  for (const Node& node : graph.nodes) {
    const OpBackend* backend = cpu_backend().kernels(node.op);
    if (node.op == Op::view) continue;
    if (backend == nullptr) throw std::runtime_error(fmt::format("{} has no CPU kernel", name_of(node.op)));
    const NodeChoice choice = backend->prepare({graph, node, *device});
    Guarded workspace(choice.workspace_bytes);
    std::vector<std::byte*> inputs, outputs;
    for (const TensorId id : node.inputs) inputs.push_back(address(id));
    for (const TensorId id : node.outputs) outputs.push_back(address(id));
    const auto kernel =
        backend->bind({graph, node, choice, *device, inputs, outputs, workspace.data(), {}, {}});
    const int64_t before = g_allocations;
    kernel->launch();
    // oneDNN allocates a little of its own for each call, and so does a std::thread.
    bool exempt = choice.engine.rfind("onednn", 0) == 0;
#if !defined(REN_OPENMP)
    exempt = true;
#endif
    if (!exempt) {
      EXPECT_EQ(g_allocations - before, 0) << name_of(node.op) << " allocates in launch";
    }
    device->synchronize();
    EXPECT_TRUE(workspace.intact()) << name_of(node.op) << " wrote outside its workspace";
  }
  std::map<TensorId, Values> values;
  for (auto& [id, block] : memory) EXPECT_TRUE(block.intact()) << "overrun around " << graph.at(id).name;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    Values& v = values[TensorId(i)];
    v.resize(size_t(t.shape.elements()));
    for (size_t e = 0; e < v.size(); ++e) v[e] = read_value(address(TensorId(i)), e, t.dtype);
  }
  return values;
}

std::string Case::engine_of(size_t node) const {
  const auto device = open_cpu_device();
  return cpu_backend().kernels(graph.nodes[node].op)->prepare({graph, graph.nodes[node], *device}).engine;
}

void expect_close(const Values& found, const Values& wanted, double tolerance, double scale,
                  const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(found[i])) continue;
    if (found[i] == wanted[i]) continue;
    ASSERT_LE(std::abs(found[i] - wanted[i]), tolerance * (std::abs(wanted[i]) + scale))
        << what << ": element " << i << " of " << found.size() << " is " << found[i] << ", not " << wanted[i];
  }
}

double sum_tolerance(int64_t terms) { return 8 * std::sqrt(double(std::max<int64_t>(terms, 1))) * 0x1p-24; }

double type_tolerance(DType type) {
  return type == DType::f16 ? 0x1p-11 : type == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace ren::test
