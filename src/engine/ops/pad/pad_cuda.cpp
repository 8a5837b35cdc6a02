// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pad/pad.h"

#include <cstdlib>

#include "engine/ops/support/extents_cuda.h"
#include "engine/ops/support/one_kernel_cuda.h"

namespace ren {
namespace {

using namespace cuda;

OneKernel specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& a = node.as<PadAttributes>();
  const bool backward = node.op == Op::pad_backward;
  const Shape& x = graph.at(backward ? node.outputs[0] : node.inputs[0]).shape;
  const Shape& y = graph.at(backward ? node.inputs[0] : node.outputs[0]).shape;
  const DType type = graph.at(node.inputs[0]).dtype;
  const bool pads_channels = a.c_before != 0 || a.c_after != 0;
  // A vector comes from a vector, or from none; mirrored or repeated channels come one by one.
  const int64_t common = std::gcd(std::gcd(x.c, y.c), std::abs(a.c_before));
  const int width =
      pads_channels && a.mode != PadMode::constant ? 1 : power_of_two_in(common, elements_in_16_bytes(type));
  const Items items = items_for(device, y.elements() / width);
  OneKernel s("pad.cu");
  s.blocks = backward ? unsigned(divide_up(x.elements() / width, kCopyThreads)) : items.blocks;
  s.source.index_type(std::max(x.elements(), y.elements()))
      .define("X", type)
      .define("V", int64_t{width})
      .define("N", x.n)
      .define("H", x.h)
      .define("W", x.w)
      .define("C", x.c)
      .define("P", y.h)
      .define("Q", y.w)
      .define("K", y.c)
      .define("TOP", a.top)
      .define("BOTTOM", a.bottom)
      .define("LEFT", a.left)
      .define("RIGHT", a.right)
      .define("C_BEFORE", a.c_before)
      .define("C_AFTER", a.c_after)
      .define("PADS_CHANNELS", int64_t{pads_channels})
      .define("MODE", int64_t{a.mode == PadMode::constant  ? 0
                              : a.mode == PadMode::reflect ? 1
                                                           : 2})
      .define("VALUE", float(a.value))
      .define("ITEMS", items.items);
  return s;
}

}  // namespace

const OpBackend& pad_cuda() { return one_kernel<specialise>(); }

const OpBackend& pad_backward_cuda() { return pad_cuda(); }

}  // namespace ren
