// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/slice/slice.h"

#include "engine/ops/support/axis_blocks.h"
#include "engine/ops/support/extents_cuda.h"
#include "engine/ops/support/one_kernel_cuda.h"

namespace ren {
namespace {

using namespace cuda;

// `x` and `y` are the slice's input and output; backward, threads walk over x.
OneKernel specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& a = node.as<SliceAttributes>();
  const bool backward = node.op == Op::slice_backward;
  const Tensor& x = graph.at(backward ? node.outputs[0] : node.inputs[0]);
  const Tensor& y = graph.at(backward ? node.inputs[0] : node.outputs[0]);
  const AxisBlocks whole = axis_blocks(x.shape, a.axis, y.dtype);
  const bool one_piece = a.step == 1;
  const int64_t run = one_piece ? a.count * whole.inner : whole.inner, first = a.begin * whole.inner;
  const int64_t count = one_piece ? 1 : a.count, stride = one_piece ? 0 : a.step * whole.inner;
  const int64_t unit = widest_unit({run, first, whole.bytes(), stride});
  const int64_t slice = whole.outer * count * run / unit, all = whole.outer * whole.bytes() / unit;
  const Items items = items_for(device, backward ? all : slice);
  OneKernel s("slice.cu");
  s.blocks = items.blocks;
  s.source.index_type(all)
      .define("U", unit)
      .define("OUTER", whole.outer)
      .define("X_BLOCK", whole.bytes() / unit)
      .define("FIRST", first / unit)
      .define("RUN", run / unit)
      .define("COUNT", count)
      .define("STRIDE", stride / unit)
      .define("ITEMS", items.items);
  return s;
}

}  // namespace

const OpBackend& slice_cuda() { return one_kernel<specialise>(); }

const OpBackend& slice_backward_cuda() { return slice_cuda(); }

}  // namespace ren
