// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/conv/conv.h"

#include <algorithm>
#include <string_view>

#include "engine/base/memory.h"
#include "engine/device/cuda/convolution.h"
#include "engine/device/cuda/launch.h"
#include "engine/ops/batch_norm/statistics_cuda.h"
#include "engine/ops/conv/depthwise_cuda.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256;
constexpr std::string_view kLibraryPrefix = "cudnn:";

// NodeChoice: the knobs are the form and whether TF32 is allowed; the engine's name is "cudnn:" and the
// library's own.
enum Form : int64_t {
  kDirect,
  kLibrary,
  kLibraryStaged,
  kLibrarySums,
  kDepthwise
};  // sums: in the library's epilogue; staged: weights pass through the workspace, for padded channels or a
    // gradient in 16 bits

bool needs_column_sums(Form form) { return form != kLibrarySums && form != kDepthwise; }

ConvolutionProblem problem_of(const Graph& graph, const Node& node, bool tf32) {
  const auto& a = node.as<ConvAttributes>();
  ConvolutionProblem p;
  TensorId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
  if (node.op == Op::conv_backward_data) {
    p.kind = ConvolutionKind::backward_data;
    y = node.inputs[0], x = node.outputs[0];
  } else if (node.op == Op::conv_backward_weights) {
    p.kind = ConvolutionKind::backward_weights;
    y = node.inputs[1], w = node.outputs[0];
  }
  const Tensor &tx = graph.at(x), &tw = graph.at(w), &ty = graph.at(y);
  p.x_type = tx.dtype, p.w_type = tw.dtype, p.y_type = ty.dtype;
  p.n = tx.shape.n, p.h = tx.shape.h, p.w = tx.shape.w, p.c = tx.shape.c;
  p.k = tw.shape.n, p.r = tw.shape.h, p.s = tw.shape.w, p.p = ty.shape.h, p.q = ty.shape.w;
  p.stride_h = a.stride_h, p.stride_w = a.stride_w, p.dilation_h = a.dilation_h, p.dilation_w = a.dilation_w;
  p.pad_top = a.pad_top, p.pad_left = a.pad_left, p.pad_bottom = a.pad_bottom, p.pad_right = a.pad_right;
  p.groups = a.groups;
  p.sums = a.sums;
  p.tf32 = tf32 && p.x_type == DType::f32;
  return p;
}

bool has_bias(const Node& node) {
  return node.op == Op::conv && node.inputs.size() > 2 && node.inputs[2] != kNoTensor;
}

const Tensor& weight_tensor(const Graph& graph, const Node& node) {
  return graph.at(node.op == Op::conv_backward_weights ? node.inputs[2] : node.inputs[1]);
}

// Images with padded channels: the library wants weights with as many.
bool is_padded(const Node& node) { return node.as<ConvAttributes>().padding_channels != 0; }

KernelSource specialise(const Graph& graph, const Node& node, const ConvolutionProblem& p) {
  const bool weights = p.kind == ConvolutionKind::backward_weights;
  const int64_t largest = std::max({p.n * p.h * p.w * p.c, p.n * p.p * p.q * p.k, p.k * p.r * p.s * p.c});
  KernelSource source("conv.cu");
  source.index_type(largest)
      .define("X", p.x_type)
      .define("WT", weights ? p.x_type : p.w_type)
      .define("DW", weights ? p.w_type : DType::f32)
      .define("Y", p.y_type)
      .define("B",
              has_bias(node) ? graph.at(node.inputs[2]).dtype : p.y_type)  // FP32 beside 16-bit data, too
      .define("N", p.n)
      .define("H", p.h)
      .define("W", p.w)
      .define("C", p.c)
      .define("K", p.k)
      .define("R", p.r)
      .define("S", p.s)
      .define("P", p.p)
      .define("Q", p.q)
      .define("CG", weight_tensor(graph, node).shape.c)
      .define("STAGED_C", p.c / p.groups)
      .define("STAGED", p.x_type)
      .define("KG", p.k / p.groups)
      .define("STRIDE_H", p.stride_h)
      .define("STRIDE_W", p.stride_w)
      .define("DILATION_H", p.dilation_h)
      .define("DILATION_W", p.dilation_w)
      .define("PAD_TOP", p.pad_top)
      .define("PAD_LEFT", p.pad_left)
      .define("V", int64_t{power_of_two_in(p.k, elements_in_16_bytes(p.y_type))});
  return source;
}

// The same problem with the weight gradient in the data's 16 bits.
ConvolutionProblem narrowed(ConvolutionProblem p) {
  p.w_type = p.x_type;
  return p;
}

ConvolutionProblem without_sums(ConvolutionProblem p) {
  p.sums = false;
  return p;
}

// What a pass of our own over y for its sums takes, in microseconds: bytes at a fair memory speed, a launch.
float sums_cost(const ConvolutionProblem& p) {
  constexpr float kBytesPerMicrosecond = 3.5e6f, kLaunch = 3.0f;
  return float(p.n * p.p * p.q * p.k) * float(size_of(p.y_type)) / kBytesPerMicrosecond + kLaunch;
}

ColumnMoments column_sums(const Tensor& y, const CudaDevice& device) {
  ColumnMoments sums(y, device);
  sums.source.define("FINISH", int64_t{kChannelSums});
  return sums;
}

uint64_t weight_bytes(const ConvolutionProblem& p) {
  return align_up(uint64_t(p.k * p.r * p.s * (p.c / p.groups)) * size_of(p.w_type));
}

NodeChoice library_choice(const ConvolutionChoice& c, Form form, uint64_t extra) {
  return {std::string(kLibraryPrefix) + c.name, uint64_t(c.workspace) + extra, {form}};
}

// The choice among the library's engines and the direct kernel, with the sums of `wanted` from an epilogue
// where that is faster than a pass of our own.
NodeChoice library_or_direct(const PrepareContext& context, const ConvolutionProblem& wanted) {
  CudaDevice& device = cuda_device(context.device);
  const ConvolutionProblem p = without_sums(wanted);
  NodeChoice choice{"own:direct", 0, {kDirect}};
  const bool padded = is_padded(context.node);
  const bool narrows =
      p.kind == ConvolutionKind::backward_weights && is_16bit(p.x_type) && p.w_type == DType::f32;
  // Unmeasured, an engine takes no time: what is looked at last wins, by its order below.
  const auto choose = [&](const ConvolutionProblem& problem) {
    ConvolutionLibrary& library = device.convolutions();
    return context.deterministic ? library.first(problem) : library.choose(problem);
  };
  float best = 1e30f;
  // A padded gradient is staged anyhow, and then in 16 bits.
  if (const auto chosen = padded && narrows ? std::nullopt : choose(p)) {
    choice = library_choice(*chosen, padded ? kLibraryStaged : kLibrary, padded ? weight_bytes(p) : 0);
    best = chosen->microseconds;
  }
  if (narrows) {
    const float widening = context.deterministic ? -1.0f : 3.0f;  // a kernel more, in microseconds
    const ConvolutionProblem narrow = narrowed(p);
    if (const auto other = choose(narrow); other && other->microseconds + widening < best)
      choice = library_choice(*other, kLibraryStaged, weight_bytes(narrow));
  }
  // The library adds up its sums by atomic additions, in whatever order, though it doesn't say so.
  if (wanted.sums && !padded && !context.deterministic)
    if (const auto fused = choose(wanted); fused && fused->microseconds < best + sums_cost(p))
      choice = library_choice(*fused, kLibrarySums, 0);
  return choice;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const ConvolutionProblem wanted = problem_of(context.graph, context.node, context.tf32),
                           p = without_sums(wanted);
  NodeChoice choice{"own:direct", 0, {kDirect}};
  if (Depthwise::serves(p)) {
    const Depthwise own(wanted, device);
    device.kernels().request(own.source());
    choice = {std::string(Depthwise::kEngine), own.workspace(), {kDepthwise}};
  } else if (!device.compiles_only()) {
    choice = library_or_direct(context, wanted);
  }
  if (wanted.sums && needs_column_sums(Form(choice.knobs[0]))) {
    const ColumnMoments sums = column_sums(context.graph.at(context.node.outputs[0]), device);
    device.kernels().request(sums.source);
    choice.workspace_bytes = std::max(choice.workspace_bytes, sums.workspace());
  }
  if (choice.knobs[0] == kDirect || choice.knobs[0] == kLibraryStaged || has_bias(context.node))
    device.kernels().request(specialise(context.graph, context.node, p));
  choice.knobs.push_back(p.tf32);
  return choice;
}

void add_bias(LaunchList& list, const CudaDevice& device, const std::shared_ptr<CompiledModule>& module,
              const ConvolutionProblem& p, std::byte* bias, std::byte* y) {
  list.kernel(module, "add_bias", grid_for(device, p.n * p.p * p.q * p.k / 4, kThreads), {kThreads}, y, bias);
}

void bind_direct(LaunchList& list, const BindContext& context, const ConvolutionProblem& p,
                 std::shared_ptr<CompiledModule> module) {
  CudaDevice& device = cuda_device(context.device);
  std::byte *const *in = context.inputs.data(), *out = context.outputs[0];
  switch (p.kind) {
    case ConvolutionKind::forward:
      list.kernel(module, "conv_forward", grid_for(device, p.n * p.p * p.q * p.k, kThreads, 32), {kThreads},
                  in[0], in[1], has_bias(context.node) ? in[2] : nullptr, out);
      break;
    case ConvolutionKind::backward_data:
      list.kernel(module, "conv_backward_data", grid_for(device, p.n * p.h * p.w * p.c, kThreads, 32),
                  {kThreads}, in[0], in[1], out);
      break;
    case ConvolutionKind::backward_weights:
      list.kernel(module, "conv_backward_weights",
                  {unsigned(weight_tensor(context.graph, context.node).shape.elements())}, {kThreads}, in[0],
                  in[1], out);
      break;
  }
}

void bind_depthwise(LaunchList& list, const BindContext& context, const ConvolutionProblem& p,
                    const std::shared_ptr<CompiledModule>& module) {
  CudaDevice& device = cuda_device(context.device);
  const Depthwise own(p, device);
  require(own.workspace() <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
  own.launch(list, device, context.inputs.data(), context.outputs.data(), context.workspace);
  if (has_bias(context.node)) add_bias(list, device, module, p, context.inputs[2], context.outputs[0]);
}

void bind_library(LaunchList& list, const BindContext& context, const ConvolutionProblem& p, Form form,
                  const std::shared_ptr<CompiledModule>& module) {
  CudaDevice& device = cuda_device(context.device);
  ConvolutionLibrary& library = device.convolutions();
  const bool weights = p.kind == ConvolutionKind::backward_weights, staged = form == kLibraryStaged;
  const bool sums = form == kLibrarySums;
  const ConvolutionProblem asked = weights && staged ? narrowed(p) : sums ? p : without_sums(p);
  const uint64_t extra = staged ? weight_bytes(asked) : 0;
  ConvolutionChoice choice;
  choice.name = context.choice.engine.substr(kLibraryPrefix.size());
  choice.workspace = int64_t(context.choice.workspace_bytes - extra);  // or more: it serves sums, too
  const auto plan = library.plan(asked, choice);
  std::byte *const *in = context.inputs.data(), *out = context.outputs[0];
  std::byte *x = in[0], *w = in[1], *y = out;
  if (p.kind == ConvolutionKind::backward_data) y = in[0], x = out;
  if (weights) y = in[1], w = out;
  std::byte* const own_w = w;
  if (staged) w = context.workspace;
  std::byte* workspace = context.workspace + extra;
  const Grid grid = grid_for(device, p.k * p.r * p.s * (p.c / p.groups), kThreads);
  if (staged && !weights) list.kernel(module, "stage_weights", grid, {kThreads}, own_w, w);
  std::byte *const totals = sums ? context.outputs[1] : nullptr, *const squares =
                                                                     sums ? context.outputs[2] : nullptr;
  list.call([&library, plan, x, w, y, workspace, totals, squares] {
    library.execute(*plan, x, w, y, workspace, totals, squares);
  });
  if (staged && weights) list.kernel(module, "unstage_weights", grid, {kThreads}, w, own_w);
  if (has_bias(context.node)) add_bias(list, device, module, p, in[2], out);
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  require(context.choice.knobs.size() == 2, "{}: a choice without its knobs", context.node.name);
  const ConvolutionProblem p = problem_of(context.graph, context.node, context.choice.knobs[1] != 0);
  const Form form = Form(context.choice.knobs[0]);
  std::shared_ptr<CompiledModule> module;
  if (form == kDirect || form == kLibraryStaged || has_bias(context.node))
    module = device.kernels().request(specialise(context.graph, context.node, p));
  auto list = std::make_unique<LaunchList>(device);
  if (form == kDirect)
    bind_direct(*list, context, p, std::move(module));
  else if (form == kDepthwise)
    bind_depthwise(*list, context, p, module);
  else
    bind_library(*list, context, p, form, module);
  if (p.sums && needs_column_sums(form)) {
    const ColumnMoments sums = column_sums(context.graph.at(context.node.outputs[0]), device);
    require(sums.workspace() <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
    list->kernel_of_pointers(device.kernels().request(sums.source), "statistics", sums.grid, sums.block,
                             {context.outputs[0]})
        .add_array({context.outputs[1], context.outputs[2]})
        .add(context.workspace)
        .add(list->counters(sums.grid.x));
  }
  return list;
}

const OpBackend backend{prepare, bind};

}  // namespace

const OpBackend& conv_cuda() { return backend; }
const OpBackend& conv_backward_data_cuda() { return backend; }
const OpBackend& conv_backward_weights_cuda() { return backend; }

}  // namespace ren
