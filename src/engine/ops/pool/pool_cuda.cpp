// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256;

// x and y are the pool's input and output, dx and dy their gradients; whatever a kernel of the
// file does not read has a type all the same.
struct Types {
  DType x = DType::f32, index = DType::u8, dx = DType::f32, dy = DType::f32;
};

struct Specialised {
  KernelSource source{"pool.cu"};
  int64_t input_vectors = 0, output_vectors = 0;
};

Specialised specialise(const PoolAttributes& a, const Shape& in, const Shape& out, const Types& types) {
  const int width =
      power_of_two_in(in.c, std::min(elements_in_16_bytes(types.x), elements_in_16_bytes(types.dy)));
  Specialised s;
  s.input_vectors = in.elements() / width;
  s.output_vectors = out.elements() / width;
  s.source.index_type(std::max(in.elements(), out.elements()))
      .define("X", types.x)
      .define("I", types.index)
      .define("DX", types.dx)
      .define("DY", types.dy)
      .define("V", int64_t{width})
      .define("C", in.c)
      .define("H", in.h)
      .define("W", in.w)
      .define("P", out.h)
      .define("Q", out.w)
      .define("KERNEL_H", a.kernel_h)
      .define("KERNEL_W", a.kernel_w)
      .define("STRIDE_H", a.stride_h)
      .define("STRIDE_W", a.stride_w)
      .define("DILATION_H", a.dilation_h)
      .define("DILATION_W", a.dilation_w)
      .define("PAD_TOP", a.pad_top)
      .define("PAD_LEFT", a.pad_left)
      .define("PAD_BOTTOM", a.pad_bottom)
      .define("PAD_RIGHT", a.pad_right)
      .define("COUNT_PAD", int64_t{a.count_include_pad})
      .define("INPUT_VECTORS", s.input_vectors)
      .define("OUTPUT_VECTORS", s.output_vectors);
  return s;
}

Specialised forward(const Graph& graph, const Node& node) {
  const Tensor &x = graph.at(node.inputs[0]), &y = graph.at(node.outputs[0]);
  Types types{x.dtype, DType::u8, x.dtype, y.dtype};
  if (node.outputs.size() > 1 && node.outputs[1] != kNoTensor) types.index = graph.at(node.outputs[1]).dtype;
  return specialise(node.as<PoolAttributes>(), x.shape, y.shape, types);
}

// dy first and x (its shape alone) last; max_pool_backward has the index between.
Specialised backward(const Graph& graph, const Node& node) {
  const Tensor &dy = graph.at(node.inputs[0]), &dx = graph.at(node.outputs[0]);
  Types types{dx.dtype, DType::u8, dx.dtype, dy.dtype};
  if (node.op == Op::max_pool_backward) types.index = graph.at(node.inputs[1]).dtype;
  return specialise(node.as<PoolAttributes>(), dx.shape, dy.shape, types);
}

template <Specialised (*specialised)(const Graph&, const Node&)>
NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialised(context.graph, context.node).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind_forward(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = forward(context.graph, context.node);
  const auto module = device.kernels().request(s.source);
  const Grid grid = grid_for(device, s.output_vectors, kThreads, 32);
  auto list = std::make_unique<LaunchList>(device);
  if (context.node.op == Op::average_pool) {
    list->kernel(module, "average_pool", grid, {kThreads}, context.inputs[0], context.outputs[0]);
  } else {
    std::byte* index = context.outputs.size() > 1 ? context.outputs[1] : nullptr;
    list->kernel(module, "max_pool", grid, {kThreads}, context.inputs[0], context.outputs[0], index);
  }
  return list;
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = backward(context.graph, context.node);
  const auto module = device.kernels().request(s.source);
  const Grid grid = grid_for(device, s.input_vectors, kThreads, 32);
  auto list = std::make_unique<LaunchList>(device);
  if (context.node.op == Op::average_pool_backward)
    list->kernel(module, "average_pool_backward", grid, {kThreads}, context.inputs[0], context.outputs[0]);
  else
    list->kernel(module, "max_pool_backward", grid, {kThreads}, context.inputs[0], context.inputs[1],
                 context.outputs[0]);
  return list;
}

}  // namespace

const OpBackend& max_pool_cuda() {
  static const OpBackend backend{prepare<forward>, bind_forward};
  return backend;
}
const OpBackend& average_pool_cuda() { return max_pool_cuda(); }
const OpBackend& max_pool_backward_cuda() {
  static const OpBackend backend{prepare<backward>, bind_backward};
  return backend;
}
const OpBackend& average_pool_backward_cuda() { return max_pool_backward_cuda(); }

}  // namespace ren
