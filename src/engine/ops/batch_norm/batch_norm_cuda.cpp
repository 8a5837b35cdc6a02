// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "engine/device/cuda/launch.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/batch_norm/statistics_cuda.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int64_t kThreads = 512, kMostLanes = 16;
constexpr uint64_t kMomentsBytes = 12;  // of one channel of one piece, as in batch_norm.cu

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool has_sums(const Node& node) { return node.inputs.size() > 5 && node.inputs[5] != kNoTensor; }

ColumnMoments specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& attributes = node.as<BatchNormAttributes>();
  const Tensor& x = graph.at(node.inputs[0]);
  if (x.shape.pixels() < 2)
    throw Error(StatusCode::unsupported, "a training normalisation needs more than one value a channel",
                "batch_norm_statistics", node.name);
  ColumnMoments s(x, device);
  s.source.define("FINISH", int64_t{kStatistics})
      .define("EPSILON", attributes.epsilon)
      .define("KEEP", attributes.keep);
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const ColumnMoments s = specialise(context.graph, context.node, device);
  device.kernels().request(s.source);
  return {has_sums(context.node) ? "own:from_sums" : "own", has_sums(context.node) ? 0 : s.workspace(), {}};
}

// nullptr for operands that the node leaves out at its end.
std::byte* optional(std::span<std::byte* const> pointers, size_t i) {
  return i < pointers.size() ? pointers[i] : nullptr;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const ColumnMoments s = specialise(context.graph, context.node, device);
  require(has_sums(context.node) || s.workspace() <= context.choice.workspace_bytes,
          "{}: workspace too small", context.node.name);
  const auto module = device.kernels().request(s.source);
  std::byte* running_mean = optional(context.inputs, 1);
  std::byte* running_variance = optional(context.inputs, 2);
  std::byte* shift = optional(context.inputs, 3);
  std::byte* mean = optional(context.outputs, 0);
  std::byte* inverse_std = optional(context.outputs, 1);
  auto list = std::make_unique<LaunchList>(device);
  const std::vector<std::byte*> results{running_mean, running_variance, shift, mean, inverse_std};
  if (has_sums(context.node)) {
    list->kernel_of_pointers(module, "from_sums", {unsigned(divide_up(s.channels, 64))}, {64}, {})
        .add_array(results)
        .add(context.inputs[4])
        .add(context.inputs[5]);
    return list;
  }
  list->kernel_of_pointers(module, "statistics", s.grid, s.block, {context.inputs[0]})
      .add_array(results)
      .add(context.workspace)
      .add(list->counters(s.grid.x));
  return list;
}

}  // namespace

cuda::ColumnMoments::ColumnMoments(const Tensor& x, const CudaDevice& device) : channels(x.shape.c) {
  const int64_t rows = x.shape.pixels();
  int width = power_of_two_in(channels, elements_in_16_bytes(x.dtype));
  while (width > 1 && rows * channels / width < int64_t(device.processors()) * 256) width /= 2;
  const int64_t lanes = divide_up(channels, width), tiles = divide_up(lanes, kMostLanes);
  const int64_t tx = divide_up(lanes, tiles), ty = std::clamp<int64_t>(kThreads / tx, 1, rows);
  splits =
      std::clamp<int64_t>(int64_t(device.processors()) * 2 / tiles, 1, std::max<int64_t>(rows / (ty * 8), 1));
  grid = {unsigned(tiles), unsigned(splits)};
  block = {unsigned(tx), unsigned(ty)};
  source.index_type(x.shape.elements())
      .define("X", x.dtype)
      .define("R", rows)
      .define("C", channels)
      .define("V", int64_t{width})
      .define("TX", tx)
      .define("TY", ty)
      .define("SPLITS", splits)
      .define("TREE", int64_t(std::bit_ceil(uint64_t(ty)) / 2))
      .define("UNROLL", int64_t{4})
      .prelude(embedded_source("moments.cuh"));
}

uint64_t cuda::ColumnMoments::workspace() const {
  return splits > 1 ? uint64_t(splits * channels) * kMomentsBytes : 0;
}

const OpBackend& batch_norm_statistics_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
