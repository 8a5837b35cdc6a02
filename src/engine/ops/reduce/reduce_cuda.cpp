// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/ops/support/operands_cuda.h"
#include "engine/pointwise/cuda_source.h"

namespace ren {
namespace {

using namespace cuda;

// The index space as K x R x C in memory order, of which R is summed over.
struct Extents {
  int64_t k = 1, r = 1, c = 1;
};

Extents extents_of(const Shape& full, const ReduceAttributes& a, const Node& node) {
  const int64_t sizes[] = {full.n, full.h, full.w, full.c};
  const bool kept[] = {a.n, a.h, a.w, a.c};
  Extents e;
  int part = 0;  // 0: in K, 1: in R, 2: in C
  for (int d = 0; d < 4; ++d) {
    if (sizes[d] == 1) continue;
    if (!kept[d] && part == 2)
      throw Error(StatusCode::unsupported, "no kernel reduces dimensions on both sides of one that stays",
                  "reduce", node.name);
    if (!kept[d])
      part = 1;
    else if (part == 1)
      part = 2;
    (part == 0 ? e.k : part == 1 ? e.r : e.c) *= sizes[d];
  }
  if (part == 0) std::swap(e.k, e.c);  // nothing is summed: columns of one row
  return e;
}

struct Specialised {
  KernelSource source{"reduce.cu"};
  Grid grid, block;
  int64_t splits = 1, results = 1, outputs = 1;
  uint64_t workspace() const { return splits > 1 ? uint64_t(outputs * splits * results) * 4 : 0; }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Pieces of R, each a multiple of `step` elements, so that about `wanted` blocks run in all.
int64_t chunk_of(int64_t r, int64_t step, int64_t blocks, int64_t wanted) {
  const int64_t splits =
      std::clamp<int64_t>(wanted / std::max<int64_t>(blocks, 1), 1, std::max<int64_t>(r / (step * 8), 1));
  return round_up(divide_up(r, splits), step);
}

Specialised specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& attributes = node.as<ReduceAttributes>();
  const Operands operands(graph, node, attributes.expression);
  const Extents e = extents_of(operands.full(), attributes, node);
  const int64_t elements = operands.full().elements(), wanted = int64_t(device.processors()) * 4;
  const bool columns = e.c > 1 || e.r == 1;

  int width = std::min(operands.widest(operands.natural_width()), power_of_two_in(columns ? e.c : e.r, 8));
  while (width > 1 && elements / width < int64_t(device.processors()) * 256)
    width /= 2;  // lanes before width

  Specialised s;
  s.outputs = int64_t(attributes.expression.outputs.size());
  s.results = e.k * e.c;
  int64_t tx = 32, ty = 8, chunk = 0;
  if (columns) {
    while (tx > 1 && tx / 2 * width >= e.c) tx /= 2;
    ty = 256 / tx;
    while (ty > 1 && ty / 2 >= e.r) ty /= 2;
    const int64_t tiles = divide_up(e.c, tx * width);
    chunk = chunk_of(e.r, ty, tiles * e.k, wanted);
    s.splits = divide_up(e.r, chunk);
    s.grid = {unsigned(tiles), unsigned(s.splits), unsigned(e.k)};
  } else {
    if (e.r > int64_t(32) * width * 8) tx = 256, ty = 1;
    const int64_t blocks = divide_up(e.k, ty);
    chunk = chunk_of(e.r, tx * width, blocks, wanted);
    s.splits = divide_up(e.r, chunk);
    s.grid = {unsigned(blocks), unsigned(s.splits)};
  }
  require(s.grid.y <= 65535 && s.grid.z <= 65535, "{}: too many blocks", node.name);
  s.block = {unsigned(tx), unsigned(ty)};

  std::vector<std::string> values;
  std::string evaluate = operands.evaluate(values), accumulate;
  for (size_t k = 0; k < values.size(); ++k)
    accumulate += fmt::format("sums[{}]{}.add({});\n", k, columns ? "[v]" : "", values[k]);
  const bool sum = attributes.kind == ReduceKind::sum;
  s.source.index_type(elements)
      .define("COLUMNS", int64_t{columns})
      .define("K", e.k)
      .define("R", e.r)
      .define("C", e.c)
      .define("V", int64_t{width})
      .define("TX", tx)
      .define("TY", ty)
      .define("CHUNK", chunk)
      .define("SPLITS", s.splits)
      .define("OUTPUTS", s.outputs)
      .define("UNROLL", int64_t{4})
      .define("ACCUMULATOR", std::string_view(sum ? "Sum" : "Maximum"))
      .define("COMBINE(a, b)", std::string_view(sum ? "((a) + (b))" : "maximum(a, b)"))
      .prelude(cuda_prelude())
      .insert("PARAMETERS", operands.parameters())
      .insert("LOADS", operands.loads(width))
      .insert("EVALUATE", evaluate)
      .insert("ACCUMULATE", accumulate);
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node, device);
  device.kernels().request(s.source);
  return {"own", s.workspace(), {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node, device);
  require(s.workspace() <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
  const auto module = device.kernels().request(s.source);
  const auto& expression = context.node.as<ReduceAttributes>().expression;
  const std::vector<std::byte*> operands(
      context.inputs.begin(), context.inputs.begin() + expression.inputs + expression.uses_random());
  const std::vector<std::byte*> outputs(context.outputs.begin(), context.outputs.end());
  auto list = std::make_unique<LaunchList>(device);
  auto& step = list->kernel_of_pointers(module, "reduce", s.grid, s.block, operands);
  step.add_array(outputs);
  step.add(context.workspace);
  if (s.splits > 1) {
    auto& finish = list->kernel_of_pointers(
        module, "finish", {unsigned(divide_up(s.results, 32)), unsigned(s.outputs)}, {32, 8}, {});
    finish.add_array(outputs);
    finish.add(context.workspace);
  }
  return list;
}

}  // namespace

const OpBackend& reduce_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
