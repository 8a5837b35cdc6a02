// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/softmax/softmax.h"

#include "engine/ops/support/extents_cuda.h"

namespace ren {
namespace {

using namespace cuda;

struct Specialised {
  KernelSource source{"softmax.cu"};
  unsigned blocks = 1;
};

// The first input, X, and the result, Y; the gradient's second input is a softmax's result.
Specialised specialise(const Graph& graph, const Node& node) {
  const Tensor &x = graph.at(node.inputs[0]), &y = graph.at(node.outputs[0]);
  const int64_t rows = x.shape.pixels();
  const RowLanes lanes = row_lanes(x.shape.c, size_of(x.dtype) < size_of(y.dtype) ? x.dtype : y.dtype);
  Specialised s;
  s.blocks = lanes.vectors > 0 ? lanes.blocks_of(rows) : unsigned(rows);
  s.source.index_type(x.shape.elements())
      .define("X", x.dtype)
      .define("Y", node.op == Op::softmax ? y.dtype : graph.at(node.inputs[1]).dtype)
      .define("ROWS", rows)
      .define("C", x.shape.c)
      .define("V", lanes.width)
      .define("LANES", lanes.lanes)
      .define("VECTORS", lanes.vectors)
      .define("LOG", int64_t{node.as<SoftmaxAttributes>().log});
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.graph, context.node).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node);
  const auto module = device.kernels().request(s.source);
  auto list = std::make_unique<LaunchList>(device);
  if (context.node.op == Op::softmax)
    list->kernel(module, "softmax", {s.blocks}, {256}, context.inputs[0], context.outputs[0]);
  else
    list->kernel(module, "softmax_backward", {s.blocks}, {256}, context.inputs[0], context.inputs[1],
                 context.outputs[0]);
  return list;
}

}  // namespace

const OpBackend& softmax_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& softmax_backward_cuda() { return softmax_cuda(); }

}  // namespace ren
