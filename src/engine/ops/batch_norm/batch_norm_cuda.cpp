// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr uint64_t kMomentsBytes = 12;  // of one channel of one piece, as in batch_norm.cu

struct Specialised {
  KernelSource source{"batch_norm.cu"};
  Grid grid, block;
  int64_t splits = 1, channels = 1;
  uint64_t workspace() const { return splits > 1 ? uint64_t(splits * channels) * kMomentsBytes : 0; }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Specialised specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& attributes = node.as<BatchNormAttributes>();
  const Tensor& x = graph.at(node.inputs[0]);
  const int64_t rows = x.shape.pixels(), channels = x.shape.c;
  if (rows < 2)
    throw Error(StatusCode::unsupported, "a training normalisation needs more than one value a channel",
                "batch_norm_statistics", node.name);
  int width = power_of_two_in(channels, elements_in_16_bytes(x.dtype));
  while (width > 1 && rows * channels / width < int64_t(device.processors()) * 256) width /= 2;
  int64_t tx = 32;
  while (tx > 1 && tx / 2 * width >= channels) tx /= 2;
  const int64_t ty = 256 / tx, tiles = divide_up(channels, tx * width);
  const int64_t wanted =
      std::clamp<int64_t>(int64_t(device.processors()) * 4 / tiles, 1, std::max<int64_t>(rows / (ty * 8), 1));
  const int64_t chunk = divide_up(divide_up(rows, wanted), ty) * ty;

  Specialised s;
  s.splits = divide_up(rows, chunk);
  s.channels = channels;
  s.grid = {unsigned(tiles), unsigned(s.splits)};
  s.block = {unsigned(tx), unsigned(ty)};
  s.source.index_type(x.shape.elements())
      .define("X", x.dtype)
      .define("R", rows)
      .define("C", channels)
      .define("V", int64_t{width})
      .define("TX", tx)
      .define("TY", ty)
      .define("CHUNK", chunk)
      .define("SPLITS", s.splits)
      .define("UNROLL", int64_t{4})
      .define("EPSILON", attributes.epsilon)
      .define("KEEP", attributes.keep);
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node, device);
  device.kernels().request(s.source);
  return {"own", s.workspace(), {}};
}

// nullptr for operands that the node leaves out at its end.
std::byte* optional(std::span<std::byte* const> pointers, size_t i) {
  return i < pointers.size() ? pointers[i] : nullptr;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node, device);
  require(s.workspace() <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
  const auto module = device.kernels().request(s.source);
  std::byte* running_mean = optional(context.inputs, 1);
  std::byte* running_variance = optional(context.inputs, 2);
  std::byte* mean = optional(context.outputs, 0);
  std::byte* inverse_std = optional(context.outputs, 1);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel(module, "statistics", s.grid, s.block, context.inputs[0], running_mean, running_variance, mean,
               inverse_std, context.workspace);
  if (s.splits > 1)
    list->kernel(module, "finish", {unsigned(divide_up(s.channels, 32))}, {32, 8}, running_mean,
                 running_variance, mean, inverse_std, context.workspace);
  return list;
}

}  // namespace

const OpBackend& batch_norm_statistics_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
