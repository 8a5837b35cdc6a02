// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/concat/concat.h"

#include <array>

#include "engine/ops/support/axis_blocks.h"
#include "engine/ops/support/extents_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr size_t kPartsPerLaunch = 64;  // of 32 bytes each: parameters of a kernel may be 4 KB

// As in concat.cu.
struct Part {
  std::byte* source;
  uint64_t length;
  uint32_t run, offset, first_block, rest;
};

struct Specialised {
  int64_t unit = 1, items = 1;
  std::vector<Part> parts;            // their sources are missing
  std::vector<KernelSource> kernels;  // one for each kPartsPerLaunch parts
  std::vector<unsigned> blocks;
};

Specialised specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const Axis axis = node.as<ConcatAttributes>().axis;
  const Tensor& out = graph.at(node.outputs[0]);
  const AxisBlocks whole = axis_blocks(out.shape, axis, out.dtype);
  Specialised s;
  s.unit = 16;
  for (const TensorId id : node.inputs)
    s.unit = widest_unit({s.unit, axis_blocks(graph.at(id).shape, axis, out.dtype).bytes()});
  const int64_t block = whole.bytes() / s.unit, total = whole.outer * block;
  require(block < int64_t{1} << 32, "{}: a block of {} bytes", node.name, whole.bytes());
  s.items = items_of(device, total);
  int64_t offset = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int64_t run = axis_blocks(graph.at(node.inputs[i]).shape, axis, out.dtype).bytes() / s.unit;
    if (i % kPartsPerLaunch == 0) s.blocks.push_back(0);
    s.parts.push_back(
        {nullptr, uint64_t(whole.outer * run), uint32_t(run), uint32_t(offset), s.blocks.back(), 0});
    s.blocks.back() += unsigned(divide_up(whole.outer * run, s.items * kCopyThreads));
    offset += run;
  }
  for (size_t first = 0; first < s.parts.size(); first += kPartsPerLaunch) {
    KernelSource source("concat.cu");
    source.index_type(total)
        .define("U", s.unit)
        .define("PARTS", int64_t(std::min(kPartsPerLaunch, s.parts.size() - first)))
        .define("BLOCK", block)
        .define("ITEMS", s.items);
    s.kernels.push_back(std::move(source));
  }
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  for (const KernelSource& source : specialise(context.graph, context.node, device).kernels)
    device.kernels().request(source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  Specialised s = specialise(context.graph, context.node, device);
  for (size_t i = 0; i < s.parts.size(); ++i) s.parts[i].source = context.inputs[i];
  auto list = std::make_unique<LaunchList>(device);
  for (size_t k = 0; k < s.kernels.size(); ++k) {
    const size_t first = k * kPartsPerLaunch, count = std::min(kPartsPerLaunch, s.parts.size() - first);
    auto& step = list->kernel_of_pointers(device.kernels().request(s.kernels[k]), "concat", {s.blocks[k]},
                                          {unsigned(kCopyThreads)}, {});
    step.add_bytes(&s.parts[first], count * sizeof(Part));
    step.add(context.outputs[0]);
  }
  return list;
}

}  // namespace

const OpBackend& concat_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
