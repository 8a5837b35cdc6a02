// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

using namespace cuda;

constexpr uint64_t kChunkElements = 4096;  // 16 turns of a block

// As in optimizer.cu.
struct alignas(32) Chunk {
  uint64_t begin;
  uint32_t count;
  float learning_rate, weight_decay;
  uint32_t frozen;
};

std::vector<Chunk> chunks_of(std::span<const Segment> segments) {
  std::vector<Chunk> chunks;
  for (const Segment& s : segments) {
    if (s.flags & kFrozen) continue;
    for (uint64_t at = 0; at < s.elements; at += kChunkElements)
      chunks.push_back({s.offset / 4 + at, uint32_t(std::min(kChunkElements, s.elements - at)),
                        s.learning_rate, s.weight_decay, 0});
  }
  return chunks;
}

KernelSource specialise(const OptimizerAttributes& a) {
  KernelSource source("optimizer.cu");
  source.define("A", a.has_copy ? a.copy_type : DType::f16)
      .define("USE_MOMENTUM", int64_t{a.use_momentum})
      .define("NESTEROV", int64_t{a.nesterov})
      .define("HAS_COPY", int64_t{a.has_copy});
  return source;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.node.as<OptimizerAttributes>()));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const auto& a = context.node.as<OptimizerAttributes>();
  const std::vector<Chunk> chunks = chunks_of(context.segments);
  auto list = std::make_unique<LaunchList>(device);
  if (chunks.empty()) return list;
  const auto region = [&context](bool wanted, Region r) {
    return wanted ? context.regions[size_t(r)].base : nullptr;
  };
  std::byte* overflow = context.inputs.size() > 3 ? context.inputs[3] : nullptr;
  list->kernel(device.kernels().request(specialise(a)), "range_sgd", {unsigned(chunks.size())}, {256},
               list->table(chunks), region(true, Region::W), region(true, Region::G),
               region(a.use_momentum, Region::M), region(a.has_copy, Region::A), context.inputs[0],
               context.inputs[1], context.inputs[2], overflow);
  return list;
}

}  // namespace

const OpBackend& range_sgd_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
