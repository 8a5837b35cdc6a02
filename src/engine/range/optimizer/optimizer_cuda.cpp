// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/range/range.h"

namespace ren {
namespace {

using namespace cuda;

constexpr uint64_t kChunkElements = 4096;  // 16 turns of a block
constexpr uint64_t kNormsBytes = 16;       // of a chunk, as in optimizer.cu

enum Input : size_t { kLearningRate, kMomentum, kWeightDecay, kOverflow, kTrust };

// As in optimizer.cu.
struct alignas(32) Chunk {
  uint64_t begin;
  uint32_t count;
  float learning_rate, weight_decay;
  int32_t ratio;
};
struct Range {
  uint32_t first, count;
  float weight_decay;
  uint32_t unused;
};

struct Tables {
  std::vector<Chunk> chunks;
  std::vector<Range> ranges;  // of the chunks of one segment, for each that has a trust ratio
};

Tables tables_of(std::span<const Segment> segments, bool lars) {
  Tables t;
  for (const Segment& s : segments) {
    if (s.flags & kFrozen || s.elements == 0) continue;
    const auto first = uint32_t(t.chunks.size());
    const bool has_ratio = lars && s.flags & kLars;
    for (uint64_t at = 0; at < s.elements; at += kChunkElements)
      t.chunks.push_back({s.offset / 4 + at, uint32_t(std::min(kChunkElements, s.elements - at)),
                          s.learning_rate, s.weight_decay, has_ratio ? int32_t(t.ranges.size()) : -1});
    if (has_ratio) t.ranges.push_back({first, uint32_t(t.chunks.size()) - first, s.weight_decay, 0});
  }
  return t;
}

KernelSource specialise(const OptimizerAttributes& a, bool lars) {
  KernelSource source("optimizer.cu");
  source.define("A", a.has_copy ? a.copy_type : DType::f16)
      .define("USE_MOMENTUM", int64_t{a.use_momentum})
      .define("NESTEROV", int64_t{a.nesterov})
      .define("HAS_COPY", int64_t{a.has_copy})
      .define("LARS", int64_t{lars});
  return source;
}

bool is_lars(const Node& node) { return node.op == Op::range_lars; }

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device)
      .kernels()
      .request(specialise(context.node.as<OptimizerAttributes>(), is_lars(context.node)));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const auto& a = context.node.as<OptimizerAttributes>();
  const Tables tables = tables_of(context.segments, is_lars(context.node));
  auto list = std::make_unique<LaunchList>(device);
  if (tables.chunks.empty()) return list;
  const auto module = device.kernels().request(specialise(a, is_lars(context.node)));
  const auto region = [&context](bool wanted, Region r) {
    return wanted ? context.regions[size_t(r)].base : nullptr;
  };
  const auto scalar = [&context](size_t i) {
    return i < context.inputs.size() ? context.inputs[i] : nullptr;
  };
  const Grid blocks{unsigned(tables.chunks.size())};
  const std::byte* chunks = list->table(tables.chunks);
  const std::byte* ratios = nullptr;
  if (!tables.ranges.empty()) {
    const std::byte* partial = list->own(DeviceBuffer(tables.chunks.size() * kNormsBytes)).data();
    ratios = list->own(DeviceBuffer(tables.ranges.size() * sizeof(float))).data();
    list->kernel(module, "norms", blocks, {256}, chunks, region(true, Region::W), region(true, Region::G),
                 scalar(kOverflow), partial);
    list->kernel(module, "trust", {unsigned(tables.ranges.size())}, {256}, list->table(tables.ranges),
                 partial, scalar(kWeightDecay), scalar(kTrust), scalar(kOverflow), ratios);
  }
  list->kernel(module, "step", blocks, {256}, chunks, region(true, Region::W), region(true, Region::G),
               region(a.use_momentum, Region::M), region(a.has_copy, Region::A), ratios,
               scalar(kLearningRate), scalar(kMomentum), scalar(kWeightDecay), scalar(kOverflow));
  return list;
}

}  // namespace

const OpBackend& range_sgd_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& range_lars_cuda() { return range_sgd_cuda(); }

}  // namespace ren
