// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/concat/concat.h"

#include "engine/ops/support/axis_blocks.h"
#include "engine/ops/support/extents_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int64_t kTableEntries = 4096;  // of 16 bytes: they stay in a processor's first cache
constexpr size_t kPartsPerLaunch = 64;   // of 32 bytes each: parameters of a kernel may be 4 KB

// As in concat.cu.
struct alignas(16) Origin {
  const std::byte* source;
  uint64_t stride;
};
struct Part {
  std::byte* source;
  uint64_t length;
  uint32_t run, offset, first_block, rest;
};

// Lengths in accesses of `unit` bytes.
struct Extents {
  int64_t unit = 16, outer = 1, block = 0, items = 1;
  std::vector<int64_t> runs;  // of each part; together they are a block
  bool table() const { return block <= kTableEntries; }
};

Extents extents_of(const Graph& graph, const Node& node, const CudaDevice& device) {
  const Axis axis = node.as<ConcatAttributes>().axis;
  const DType type = graph.at(node.outputs[0]).dtype;
  Extents e;
  for (const TensorId id : node.inputs) {
    const AxisBlocks part = axis_blocks(graph.at(id).shape, axis, type);
    e.outer = part.outer;
    e.runs.push_back(part.bytes());
    e.unit = widest_unit({e.unit, part.bytes()});
  }
  for (int64_t& run : e.runs) e.block += run /= e.unit;
  require(e.block < int64_t{1} << 32, "{}: a block of {} bytes", node.name, e.block * e.unit);
  e.items = items_of(device, e.outer * e.block);
  return e;
}

KernelSource specialise(const Extents& e, size_t parts) {
  KernelSource source("concat.cu");
  source.index_type(e.outer * e.block)
      .define("TABLE", int64_t{e.table()})
      .define("U", e.unit)
      .define("TOTAL", e.outer * e.block)
      .define("PARTS", int64_t(parts))
      .define("BLOCK", e.block)
      .define("ITEMS", e.items);
  return source;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Extents e = extents_of(context.graph, context.node, device);
  for (size_t first = 0; first < e.runs.size(); first += kPartsPerLaunch)
    device.kernels().request(specialise(e, e.table() ? 1 : std::min(kPartsPerLaunch, e.runs.size() - first)));
  return {"own", 0, {}};
}

void bind_table(LaunchList& list, const BindContext& context, const Extents& e) {
  std::vector<Origin> origins;
  for (size_t p = 0; p < e.runs.size(); ++p)
    for (int64_t i = 0; i < e.runs[p]; ++i)
      origins.push_back({context.inputs[p] + i * e.unit, uint64_t(e.runs[p] * e.unit)});
  list.kernel(cuda_device(context.device).kernels().request(specialise(e, 1)), "concat",
              {unsigned(divide_up(e.outer * e.block, e.items * kCopyThreads))}, {unsigned(kCopyThreads)},
              list.table(origins), context.outputs[0]);
}

void bind_parts(LaunchList& list, const BindContext& context, const Extents& e) {
  uint32_t offset = 0;
  for (size_t first = 0; first < e.runs.size(); first += kPartsPerLaunch) {
    const size_t count = std::min(kPartsPerLaunch, e.runs.size() - first);
    std::vector<Part> parts;
    uint32_t blocks = 0;
    for (size_t p = first; p < first + count; ++p) {
      const auto run = uint32_t(e.runs[p]);
      parts.push_back({context.inputs[p], uint64_t(e.outer) * run, run, offset, blocks, 0});
      blocks += uint32_t(divide_up(e.outer * run, e.items * kCopyThreads));
      offset += run;
    }
    auto& step = list.kernel_of_pointers(cuda_device(context.device).kernels().request(specialise(e, count)),
                                         "concat", {blocks}, {unsigned(kCopyThreads)}, {});
    step.add_bytes(parts.data(), count * sizeof(Part));
    step.add(context.outputs[0]);
  }
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Extents e = extents_of(context.graph, context.node, device);
  auto list = std::make_unique<LaunchList>(device);
  if (e.table())
    bind_table(*list, context, e);
  else
    bind_parts(*list, context, e);
  return list;
}

}  // namespace

const OpBackend& concat_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
