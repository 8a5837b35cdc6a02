// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/row_moments_cuda.h"

#include "engine/ops/support/extents_cuda.h"

namespace ren::cuda {
namespace {

constexpr uint64_t kMomentsBytes = 12;  // as in moments.cuh

struct Specialised {
  KernelSource source{"row_moments.cu"};
  bool short_rows = false;
  unsigned blocks = 1;
  int64_t splits = 1;
  uint64_t workspace = 0;
};

Specialised specialise(const CudaDevice& device, const RowMoments& what) {
  const RowLanes lanes = row_lanes(what.length, what.type);
  Specialised s;
  s.short_rows = lanes.vectors > 0;
  const int64_t step = 256 * lanes.width;  // elements of a block's turn
  // Few long rows are cut so that all processors have some of them.
  const int64_t wanted = std::clamp<int64_t>(int64_t(device.processors()) * 4 / what.rows, 1,
                                             std::max<int64_t>(what.length / (step * 4), 1));
  const int64_t chunk = divide_up(divide_up(what.length, wanted), step) * step;
  if (!s.short_rows) {
    s.splits = divide_up(what.length, chunk);
    s.workspace = s.splits > 1 ? uint64_t(what.rows * s.splits) * kMomentsBytes : 0;
  }
  s.blocks = s.short_rows ? lanes.blocks_of(what.rows) : unsigned(what.rows * s.splits);
  s.source.index_type(what.rows * std::max(what.length, what.expand))
      .define("X", what.type)
      .define("ROWS", what.rows)
      .define("L", what.length)
      .define("EXPAND", what.expand)
      .define("V", lanes.width)
      .define("LANES", lanes.lanes)
      .define("VECTORS", lanes.vectors)
      .define("SPLITS", s.splits)
      .define("CHUNK", chunk)
      .define("EPSILON", what.epsilon)
      .prelude(embedded_source("moments.cuh"));
  return s;
}

std::byte* optional(std::span<std::byte* const> pointers, size_t i) {
  return i < pointers.size() ? pointers[i] : nullptr;
}

}  // namespace

NodeChoice prepare_row_moments(CudaDevice& device, const RowMoments& what) {
  const Specialised s = specialise(device, what);
  device.kernels().request(s.source);
  return {"own", s.workspace, {}};
}

std::unique_ptr<Kernel> bind_row_moments(const BindContext& context, const RowMoments& what) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(device, what);
  require(s.workspace <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
  const auto module = device.kernels().request(s.source);
  std::byte *mean = optional(context.outputs, 0), *inverse_std = optional(context.outputs, 1);
  auto list = std::make_unique<LaunchList>(device);
  if (s.short_rows) {
    list->kernel(module, "short_rows", {s.blocks}, {256}, context.inputs[0], mean, inverse_std);
    return list;
  }
  list->kernel(module, "long_rows", {s.blocks}, {256}, context.inputs[0], mean, inverse_std,
               context.workspace);
  if (s.splits > 1)
    list->kernel(module, "finish", {unsigned(divide_up(what.rows * 32, 256))}, {256}, mean, inverse_std,
                 context.workspace);
  return list;
}

}  // namespace ren::cuda
