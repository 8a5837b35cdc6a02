// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/ops/permute/axes.h"
#include "engine/ops/support/extents_cuda.h"
#include "engine/ops/support/one_kernel_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int64_t kSharedBytes = 32 << 10;  // that a block permutes at once, at most
constexpr int64_t kTile = 64;

using Axes = std::vector<OutputAxis>;

int64_t product(const Axes& axes, size_t from = 0) {
  int64_t all = 1;
  for (size_t i = from; i < axes.size(); ++i) all *= axes[i].extent;
  return all;
}

// A type of common.cuh that is as wide.
DType bits_of(int64_t bytes) { return bytes == 4 ? DType::i32 : bytes == 2 ? DType::f16 : DType::u8; }

void define_axes(KernelSource& source, const Axes& axes) {
  std::vector<int64_t> extents, strides;
  for (const OutputAxis& axis : axes) extents.push_back(axis.extent), strides.push_back(axis.stride);
  source.define("AXES", int64_t(axes.size()))
      .define("EXTENTS", std::string_view(fmt::format("{{{}}}", fmt::join(extents, ", "))))
      .define("STRIDES", std::string_view(fmt::format("{{{}}}", fmt::join(strides, ", "))));
}

// Bytes of the accesses in which runs can be copied as they are.
int64_t unit_of(const Axes& axes, int64_t element) {
  int64_t unit = widest_unit({axes.back().extent * element, 16});
  for (size_t i = 0; i + 1 < axes.size(); ++i) unit = widest_unit({unit, axes[i].stride * element});
  return unit;
}

OneKernel by_runs(Axes axes, int64_t element, const CudaDevice& device) {
  const int64_t unit = unit_of(axes, element), total = product(axes) * element / unit;
  for (OutputAxis& axis : axes) axis.stride = axis.stride * element / unit;
  axes.back() = {axes.back().extent * element / unit, 1};
  const Items items = items_for(device, total);
  OneKernel s("permute.cu");
  s.blocks = items.blocks;
  s.source.index_type(total)
      .define("KIND", int64_t{0})
      .define("U", unit)
      .define("TOTAL", total)
      .define("ITEMS", items.items);
  define_axes(s.source, axes);
  return s;
}

// The axes behind the first, when these permute blocks of their own; else all, with a first of 1.
Axes blocks_of(const Axes& axes) {
  if (axes.size() > 1 && axes[0].stride == product(axes, 1)) return axes;
  Axes all{{1, product(axes)}};
  all.insert(all.end(), axes.begin(), axes.end());
  return all;
}

// Blocks that begin at a multiple of 16 bytes together.
int64_t aligned_blocks(const Axes& axes, int64_t element) {
  return 16 / std::gcd(product(axes, 1) * element, int64_t{16});
}

bool fits_shared(const Axes& axes, int64_t element) {
  return aligned_blocks(axes, element) * product(axes, 1) * element <= kSharedBytes;
}

OneKernel by_blocks(const Axes& axes, int64_t element, const CudaDevice& device) {
  const int64_t block = product(axes, 1), total = product(axes);
  const int64_t least = aligned_blocks(axes, element) * block * element;
  const int64_t many = total * element / (16 << 10) >= int64_t(device.processors()) * 2;
  const int64_t chunk = least * std::max<int64_t>(((many ? 16 : 4) << 10) / least, 1) / element;
  OneKernel s("permute.cu");
  s.blocks = unsigned(divide_up(total, chunk));
  s.source.index_type(total)
      .define("KIND", int64_t{1})
      .define("T", bits_of(element))
      .define("V", 16 / element)
      .define("CHUNK", chunk)
      .define("TOTAL", total);
  define_axes(s.source, axes);
  return s;
}

// Small extents get a narrow tile, the other side of which is longer.
int64_t tile_of(int64_t extent, int64_t at_most) {
  int64_t tile = 8;
  while (tile < extent && tile < at_most) tile *= 2;
  return tile;
}

OneKernel by_tiles(const Axes& axes, int64_t element) {
  Axes others;
  std::vector<int64_t> targets;
  int64_t target = product(axes), a_target = 0;
  OutputAxis a{}, b = axes.back();
  for (size_t i = 0; i + 1 < axes.size(); ++i) {
    target /= axes[i].extent;
    if (axes[i].stride == 1)
      a = axes[i], a_target = target;
    else
      others.push_back(axes[i]), targets.push_back(target);
  }
  if (others.empty()) others.push_back({1, 0}), targets.push_back(0);
  int64_t a_tile = tile_of(a.extent, kTile), b_tile = tile_of(b.extent, kTile * kTile / a_tile);
  a_tile = tile_of(a.extent, kTile * kTile / b_tile);
  OneKernel s("permute.cu");
  s.blocks = unsigned(divide_up(a.extent, a_tile) * divide_up(b.extent, b_tile) * product(others));
  s.source.index_type(product(axes))
      .define("KIND", int64_t{2})
      .define("T", bits_of(element))
      .define("A", a.extent)
      .define("B", b.extent)
      .define("A_TILE", a_tile)
      .define("B_TILE", b_tile)
      .define("A_WIDTH", int64_t{power_of_two_in(a.extent, int(16 / element))})
      .define("B_WIDTH", int64_t{power_of_two_in(b.extent, int(16 / element))})
      .define("B_STRIDE", b.stride)
      .define("A_TARGET", a_target)
      .define("OUTPUT_STRIDES", std::string_view(fmt::format("{{{}}}", fmt::join(targets, ", "))));
  define_axes(s.source, others);
  return s;
}

OneKernel specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const Tensor& x = graph.at(node.inputs[0]);
  const auto element = int64_t(size_of(x.dtype));
  const Axes axes = axes_of(node.as<PermuteAttributes>(), x.shape.n), blocks = blocks_of(axes);
  const bool runs = axes.back().stride == 1;
  if (runs && (unit_of(axes, element) == 16 || !fits_shared(blocks, element)))
    return by_runs(axes, element, device);
  return fits_shared(blocks, element) ? by_blocks(blocks, element, device) : by_tiles(axes, element);
}

}  // namespace

const OpBackend& permute_cuda() { return one_kernel<specialise>(); }

}  // namespace ren
