// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/cross_entropy/cross_entropy.h"

#include "engine/device/cuda/launch.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int64_t kRowsPerBlock = 8;
constexpr uint64_t kRowResultBytes = 12;  // as in cross_entropy.cu

// The inputs that mixed samples bring stand behind labels and `scalars`.
bool is_mixed(const Node& node, size_t scalars) { return node.inputs.size() > 3 + scalars; }

KernelSource specialise(const Graph& graph, const Node& node, DType gradient, size_t scalars) {
  const auto& a = node.as<CrossEntropyAttributes>();
  const Tensor& logits = graph.at(node.inputs[0]);
  KernelSource source("cross_entropy.cu");
  source.define("X", logits.dtype)
      .define("DX", gradient)
      .define("ROWS", logits.shape.pixels())
      .define("C", logits.shape.c)
      .define("WEIGHT", a.weight)
      .define("SMOOTHING", a.label_smoothing)
      .define("IGNORE_INDEX", int64_t{a.ignore_index})
      .define("MIXED", int64_t{is_mixed(node, scalars)});
  return source;
}

Grid row_blocks(const Graph& graph, const Node& node) {
  return {unsigned((graph.at(node.inputs[0]).shape.pixels() + kRowsPerBlock - 1) / kRowsPerBlock)};
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.graph, context.node, DType::f32, 1));
  return {"own", uint64_t(context.graph.at(context.node.inputs[0]).shape.pixels()) * kRowResultBytes, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const auto module = device.kernels().request(specialise(context.graph, context.node, DType::f32, 1));
  const auto output = [&context](size_t i) {
    return i < context.outputs.size() ? context.outputs[i] : nullptr;
  };
  auto list = std::make_unique<LaunchList>(device);
  auto& rows = list->kernel(module, "rows", row_blocks(context.graph, context.node), {32, kRowsPerBlock},
                            context.inputs[0], context.inputs[1], context.workspace);
  if (is_mixed(context.node, 1)) rows.add(context.inputs[3]).add(context.inputs[4]);
  list->kernel(module, "total", {1}, {256}, context.workspace, context.inputs[2], output(0), output(1),
               output(2));
  return list;
}

NodeChoice prepare_backward(const PrepareContext& context) {
  const DType type = context.graph.at(context.node.outputs[0]).dtype;
  cuda_device(context.device).kernels().request(specialise(context.graph, context.node, type, 2));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const DType type = context.graph.at(context.node.outputs[0]).dtype;
  const auto module = device.kernels().request(specialise(context.graph, context.node, type, 2));
  std::byte* loss_scale = context.inputs.size() > 3 ? context.inputs[3] : nullptr;
  auto list = std::make_unique<LaunchList>(device);
  auto& backward =
      list->kernel(module, "backward", row_blocks(context.graph, context.node), {32, kRowsPerBlock},
                   context.inputs[0], context.inputs[1], context.inputs[2], loss_scale, context.outputs[0]);
  if (is_mixed(context.node, 2)) backward.add(context.inputs[4]).add(context.inputs[5]);
  return list;
}

}  // namespace

const OpBackend& cross_entropy_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}
const OpBackend& cross_entropy_backward_cuda() {
  static const OpBackend backend{prepare_backward, bind_backward};
  return backend;
}

}  // namespace ren
