// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

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
  const char* entry = "";
  int64_t numbers = 0;  // of pieces of work for one thread
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a thread may hold at once: 4 registers each forward, 6 each backward.
constexpr int64_t kMostTaps = 16, kMostWindows = 9, kMostCovered = 16;

// Results below each other that share rows of x, made by one thread, so that these are read once.
int64_t tile(const PoolAttributes& a, const Shape& out) {
  const bool share = a.kernel_h > a.stride_h && a.dilation_h == 1 && out.h > 1;
  return share && (a.kernel_h + a.stride_h) * a.kernel_w <= kMostTaps ? 2 : 1;
}

// Windows along one axis that cover a position, at most.
int64_t live(int64_t kernel, int64_t dilation, int64_t stride) {
  return (kernel - 1) * dilation / stride + 1;
}

bool gathers_whole(const PoolAttributes& a) {
  return live(a.kernel_h, a.dilation_h, a.stride_h) * live(a.kernel_w, a.dilation_w, a.stride_w) <=
             kMostWindows &&
         a.stride_h * a.stride_w <= kMostCovered;
}

// Pieces of `stride` positions, the padding counted, in which positions of the input lie.
int64_t pieces(int64_t size, int64_t before, int64_t stride) {
  return (size - 1 + before) / stride - before / stride + 1;
}

Specialised specialise(const PoolAttributes& a, const Shape& in, const Shape& out, const Types& types) {
  const int width =
      power_of_two_in(in.c, std::min(elements_in_16_bytes(types.x), elements_in_16_bytes(types.dy)));
  Specialised s;
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
      .define("COUNT_PAD", int64_t{a.count_include_pad});
  s.numbers = in.c / width;
  return s;
}

Specialised forward(const Graph& graph, const Node& node) {
  const Tensor &x = graph.at(node.inputs[0]), &y = graph.at(node.outputs[0]);
  const auto& a = node.as<PoolAttributes>();
  Types types{x.dtype, DType::u8, x.dtype, y.dtype};
  if (node.outputs.size() > 1 && node.outputs[1] != kNoTensor) types.index = graph.at(node.outputs[1]).dtype;
  Specialised s = specialise(a, x.shape, y.shape, types);
  const bool average = node.op == Op::average_pool;
  // A place in the window is as wide as an element while the maximum is looked for.
  if (!average && is_16bit(x.dtype) && a.kernel_h * a.kernel_w > 65536)
    throw Error(StatusCode::unsupported,
                fmt::format("no kernel has windows of {}x{} in 16 bits", a.kernel_h, a.kernel_w), "max_pool",
                node.name);
  const int64_t rows = tile(a, y.shape);
  s.entry = average ? "average_pool" : "max_pool";
  s.numbers *= y.shape.n * divide_up(y.shape.h, rows) * y.shape.w;
  s.source.define("BACKWARD", int64_t{0})
      .define("AVERAGE", int64_t{average})
      .define("WHOLE", int64_t{a.kernel_h * a.kernel_w <= kMostTaps})
      .define("TILE", rows)
      .define("NUMBERS", s.numbers);
  return s;
}

// dy first and x (its shape alone) last; max_pool_backward has the index between.
Specialised backward(const Graph& graph, const Node& node) {
  const Tensor &dy = graph.at(node.inputs[0]), &dx = graph.at(node.outputs[0]);
  const auto& a = node.as<PoolAttributes>();
  const bool average = node.op == Op::average_pool_backward, whole = gathers_whole(a);
  Types types{dx.dtype, DType::u8, dx.dtype, dy.dtype};
  if (!average) types.index = graph.at(node.inputs[1]).dtype;
  Specialised s = specialise(a, dx.shape, dy.shape, types);
  const int64_t height = whole ? pieces(dx.shape.h, a.pad_top, a.stride_h) : dx.shape.h;
  const int64_t breadth = whole ? pieces(dx.shape.w, a.pad_left, a.stride_w) : dx.shape.w;
  s.entry = average ? "average_pool_backward" : "max_pool_backward";
  s.numbers *= dx.shape.n * height * breadth;
  s.source.define("BACKWARD", int64_t{1})
      .define("AVERAGE", int64_t{average})
      .define("WHOLE", int64_t{whole})
      .define("TILES_H", height)
      .define("TILES_W", breadth)
      .define("NUMBERS", s.numbers);
  return s;
}

template <Specialised (*specialised)(const Graph&, const Node&)>
NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialised(context.graph, context.node).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> launch(const BindContext& context, const Specialised& s,
                               const std::vector<std::byte*>& pointers) {
  CudaDevice& device = cuda_device(context.device);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel_of_pointers(device.kernels().request(s.source), s.entry,
                           grid_for(device, s.numbers, kThreads, 32), {kThreads}, pointers);
  return list;
}

std::unique_ptr<Kernel> bind_forward(const BindContext& context) {
  std::vector<std::byte*> pointers{context.inputs[0], context.outputs[0]};
  if (context.node.op == Op::max_pool)
    pointers.push_back(context.outputs.size() > 1 ? context.outputs[1] : nullptr);
  return launch(context, forward(context.graph, context.node), pointers);
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  std::vector<std::byte*> pointers{context.inputs[0], context.outputs[0]};
  if (context.node.op == Op::max_pool_backward) pointers.insert(pointers.begin() + 1, context.inputs[1]);
  return launch(context, backward(context.graph, context.node), pointers);
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
