// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/base/half.h"
#include "engine/device/cuda/launch.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/support/extents_cuda.h"
#include "engine/ops/support/operands_cuda.h"
#include "engine/pointwise/cuda_source.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256, kBlocks = 32;  // in a block; blocks for a processor
constexpr size_t kMostWideFixed = 2;         // operands that a thread keeps in registers at full width

// x and y are the pool's input and output, dx and dy their gradients; whatever a kernel of the
// file does not read has a type all the same.
struct Types {
  DType x = DType::f32, index = DType::u8, dx = DType::f32, dy = DType::f32;
};

struct Specialised {
  KernelSource source{"pool.cu"};
  const char* entry = "";
  Grid grid;
  int64_t numbers = 0;  // of pieces of work for one thread
};

// What a thread may hold at once: registers of taps forward, windows of 6 registers backward.
constexpr int64_t kMostTapWords = 64, kMostWindows = 9, kMostCovered = 16;

int64_t tap_words(int64_t taps, DType type, int width) {
  return taps * divide_up(width * int64_t(size_of(type)), 4);
}

// Results below each other that share rows of x, made by one thread, so that these are read once.
int64_t tile(const PoolAttributes& a, const Shape& out, DType type, int width) {
  const bool share = a.kernel_h > a.stride_h && a.dilation_h == 1 && out.h > 1;
  return share && tap_words((a.kernel_h + a.stride_h) * a.kernel_w, type, width) <= kMostTapWords ? 2 : 1;
}

// Of max(v, least) the expression keeps v, where a constant is the least.
std::optional<float> take_least(Expression& e) {
  const ExprNode& last = e.nodes[size_t(e.outputs[0])];
  if (last.prim != Prim::max) return {};
  for (const auto& [v, least] : {std::pair{last.a, last.b}, {last.b, last.a}}) {
    const ExprNode& constant = e.nodes[size_t(least)];
    if (constant.prim != Prim::constant || std::isnan(constant.value)) continue;
    e.outputs[0] = v;
    return float(constant.value);
  }
  return {};
}

// A word whose lanes hold the value.
uint32_t word_of(float value, DType type) {
  if (!is_16bit(type)) return std::bit_cast<uint32_t>(value);
  uint16_t bits = 0;
  convert_from_f32(&value, type, reinterpret_cast<std::byte*>(&bits), 1);
  return bits * 0x10001u;
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

int widest(const Shape& in, const Types& types) {
  return power_of_two_in(in.c, std::min(elements_in_16_bytes(types.x), elements_in_16_bytes(types.dy)));
}

Specialised specialise(const PoolAttributes& a, const Shape& in, const Shape& out, const Types& types,
                       int width) {
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

Specialised forward(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& a = node.as<PoolAttributes>();
  Expression expression = a.expression;
  float least = -std::numeric_limits<float>::infinity();
  std::optional<Operands> operands;
  size_t wide = 0;
  if (a.computes()) {
    least = take_least(expression).value_or(least);
    operands.emplace(graph, node, expression);
    require(operands->only_varying() && !expression.uses_random() && expression.outputs.size() == 1,
            "{}: a pool of {}", node.name, expression.text());
    wide = *operands->only_varying();
  }
  const Tensor &x = graph.at(node.inputs[wide]), &y = graph.at(node.outputs[0]);
  Types types{x.dtype, DType::u8, x.dtype, y.dtype};
  if (node.outputs.size() > 1 && node.outputs[1] != kNoTensor) types.index = graph.at(node.outputs[1]).dtype;
  const bool average = node.op == Op::average_pool;
  // A place in the window is as wide as an element while the maximum is looked for.
  if (!average && is_16bit(x.dtype) && a.kernel_h * a.kernel_w > 65536)
    throw Error(StatusCode::unsupported,
                fmt::format("no kernel has windows of {}x{} in 16 bits", a.kernel_h, a.kernel_w), "max_pool",
                node.name);
  int width = widest(x.shape, types);
  if (operands && operands->fixed() > kMostWideFixed) width = std::min(width, 4);
  Specialised s = specialise(a, x.shape, y.shape, types, width);
  const int64_t rows = tile(a, y.shape, x.dtype, width);
  s.entry = average ? "average_pool" : "max_pool";
  s.numbers *= y.shape.n * divide_up(y.shape.h, rows) * y.shape.w;
  s.grid = grid_for(device, s.numbers, kThreads, kBlocks);
  s.source.define("BACKWARD", int64_t{0})
      .define("AVERAGE", int64_t{average})
      .define("WHOLE", int64_t{tap_words(a.kernel_h * a.kernel_w, x.dtype, width) <= kMostTapWords})
      .define("LEAST", std::string_view(fmt::format("0x{:08x}u", word_of(least, x.dtype))))
      .define("TILE", rows)
      .define("NUMBERS", s.numbers)
      .define("COMPUTES", int64_t{operands.has_value()});
  std::string parameters = "const X* x,", fixed, loads, evaluate;
  if (operands) {
    // A thread keeps what depends on the channel alone, where it stays with its channels.
    std::vector<std::string> values;
    const bool stays = align_grid(s.grid, kThreads, x.shape.c / width);
    const std::string channel = stays ? "(C / V - 1 - first % (C / V)) * V" : "strip.at.c";
    const std::string by_channel = fmt::format("[[maybe_unused]] const index_t channel = {};\n{}", channel,
                                               operands->loads(width, Operands::Which::fixed, "channel"));
    parameters = operands->parameters();
    fixed = fmt::format("const X* const x = x{};\n{}", wide, stays ? by_channel : "");
    loads = stays ? "" : by_channel;
    evaluate = fmt::format("const Values& a{} = wide;\n{}", wide, operands->evaluate(values));
    evaluate += fmt::format("value[v] = {};\n", values[0]);
    s.source.prelude(cuda_prelude());
  }
  s.source.insert("PARAMETERS", parameters)
      .insert("FIXED", fixed)
      .insert("LOADS", loads)
      .insert("EVALUATE", evaluate);
  return s;
}

// dy first and x (its shape alone) last; max_pool_backward has the index between.
Specialised backward(const Graph& graph, const Node& node, const CudaDevice& device) {
  const Tensor &dy = graph.at(node.inputs[0]), &dx = graph.at(node.outputs[0]);
  const auto& a = node.as<PoolAttributes>();
  const bool average = node.op == Op::average_pool_backward, whole = gathers_whole(a);
  Types types{dx.dtype, DType::u8, dx.dtype, dy.dtype};
  if (!average) types.index = graph.at(node.inputs[1]).dtype;
  Specialised s = specialise(a, dx.shape, dy.shape, types, widest(dx.shape, types));
  const int64_t height = whole ? pieces(dx.shape.h, a.pad_top, a.stride_h) : dx.shape.h;
  const int64_t breadth = whole ? pieces(dx.shape.w, a.pad_left, a.stride_w) : dx.shape.w;
  s.entry = average ? "average_pool_backward" : "max_pool_backward";
  s.numbers *= dx.shape.n * height * breadth;
  s.grid = grid_for(device, s.numbers, kThreads, kBlocks);
  s.source.define("BACKWARD", int64_t{1})
      .define("AVERAGE", int64_t{average})
      .define("WHOLE", int64_t{whole})
      .define("TILES_H", height)
      .define("TILES_W", breadth)
      .define("NUMBERS", s.numbers)
      .define("COMPUTES", int64_t{0});
  for (const char* mark : {"PARAMETERS", "FIXED", "LOADS", "EVALUATE"}) s.source.insert(mark, "");
  return s;
}

using Specialise = Specialised(const Graph&, const Node&, const CudaDevice&);

template <Specialise specialised>
NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  device.kernels().request(specialised(context.graph, context.node, device).source);
  return {"own", 0, {}};
}

// Inputs of which more than the shape is read, then outputs; an index that nobody wants is null.
template <Specialise specialised>
std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialised(context.graph, context.node, device);
  const Op op = context.node.op;
  std::vector<std::byte*> pointers(context.inputs.begin(), context.inputs.end());
  if (op == Op::max_pool_backward || op == Op::average_pool_backward) pointers.pop_back();
  pointers.insert(pointers.end(), context.outputs.begin(), context.outputs.end());
  if (op == Op::max_pool && context.outputs.size() == 1) pointers.push_back(nullptr);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel_of_pointers(device.kernels().request(s.source), s.entry, s.grid, {kThreads}, pointers);
  return list;
}

}  // namespace

const OpBackend& max_pool_cuda() {
  static const OpBackend backend{prepare<forward>, bind<forward>};
  return backend;
}
const OpBackend& average_pool_cuda() { return max_pool_cuda(); }
const OpBackend& max_pool_backward_cuda() {
  static const OpBackend backend{prepare<backward>, bind<backward>};
  return backend;
}
const OpBackend& average_pool_backward_cuda() { return max_pool_backward_cuda(); }

}  // namespace ren
