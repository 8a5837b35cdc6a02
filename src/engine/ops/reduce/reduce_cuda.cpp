// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "engine/device/cuda/launch.h"
#include "engine/ops/support/operands_cuda.h"
#include "engine/pointwise/cuda_source.h"

namespace ren {
namespace {

using namespace cuda;

// Terms in 16 bits are exact to 5e-4; so many added one after another in FP32 lose at most
// 1024 * 2^-24 = 6e-5 of the sum of their magnitudes.
constexpr int64_t kMostPlainTerms = 1024;
constexpr int64_t kColumnThreads = 512, kMostColumnLanes = 16;
constexpr size_t kMostWideFixed = 2;  // operands that a thread keeps in registers at full width

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
  bool columns = false;
  uint64_t workspace() const { return splits > 1 ? uint64_t(outputs * splits * results) * 4 : 0; }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Shares of R, worth at least 8 steps each, so that about `wanted` blocks run in all.
int64_t splits_of(int64_t r, int64_t step, int64_t blocks, int64_t wanted) {
  return std::clamp<int64_t>(wanted / std::max<int64_t>(blocks, 1), 1, std::max<int64_t>(r / (step * 8), 1));
}

Specialised specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const auto& attributes = node.as<ReduceAttributes>();
  const Operands operands(graph, node);
  const Extents e = extents_of(operands.full(), attributes, node);
  const int64_t elements = operands.full().elements(), wanted = int64_t(device.processors()) * 2;
  const bool columns = e.c > 1 || e.r == 1;

  using Which = Operands::Which;
  // Columns stay with a thread, and so do operands that depend on the column alone.
  const bool fixed = columns && e.c % operands.innermost() == 0;
  int width = std::min(operands.widest(operands.natural_width()), power_of_two_in(columns ? e.c : e.r, 8));
  if (fixed && operands.fixed() > kMostWideFixed) width = std::min(width, 4);
  while (width > 1 && elements / width < int64_t(device.processors()) * 256)
    width /= 2;  // lanes before width

  Specialised s;
  s.outputs = int64_t(attributes.reduced());
  s.results = e.k * e.c;
  s.columns = columns;
  int64_t tx = 32, ty = 8, chunk = 0;
  if (columns) {
    const int64_t lanes = divide_up(e.c, width), tiles = divide_up(lanes, kMostColumnLanes);
    tx = divide_up(lanes, tiles);
    ty = std::clamp<int64_t>(kColumnThreads / tx, 1, std::max<int64_t>(1, e.r));
    s.splits = splits_of(e.r, ty, tiles * e.k, wanted);
    s.grid = {unsigned(tiles), unsigned(s.splits), unsigned(e.k)};
  } else {
    if (e.r > int64_t(32) * width * 8) tx = 256, ty = 1;
    const int64_t blocks = divide_up(e.k, ty);
    chunk = round_up(divide_up(e.r, splits_of(e.r, tx * width, blocks, wanted)), tx * width);
    s.splits = divide_up(e.r, chunk);
    s.grid = {unsigned(blocks), unsigned(s.splits)};
  }
  require(s.grid.y <= 65535 && s.grid.z <= 65535, "{}: too many blocks", node.name);
  s.block = {unsigned(tx), unsigned(ty)};

  std::vector<std::string> values;
  std::string evaluate = operands.evaluate(values), accumulate;
  for (size_t k = 0; k < attributes.reduced(); ++k)
    accumulate += fmt::format("sums[{}]{}.add({});\n", k, columns ? "[v]" : "", values[k]);
  std::string parameters = operands.parameters(), stores;
  std::string loads = operands.loads(width, fixed ? Which::varying : Which::all);
  for (size_t k = 0; k < attributes.stored.size(); ++k) {
    const char* type = name_of(attributes.stored[k]);
    parameters += fmt::format("{}* z{}, ", type, k);
    loads += fmt::format("float stored{}[{}];\n", k, width);
    accumulate += fmt::format("stored{}[v] = {};\n", k, values[attributes.reduced() + k]);
    stores += fmt::format("Vec<{0}, {1}>::pack(stored{2}).store(z{2} + e);\n", type, width, k);
  }
  const bool sum = attributes.kind == ReduceKind::sum;
  const int64_t terms = columns ? divide_up(e.r, s.splits * ty) : chunk / tx;  // that a thread adds in a row
  const bool plain = operands.natural_width() == 8 && terms <= kMostPlainTerms;
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
      .define("TREE", int64_t(std::bit_ceil(uint64_t(ty)) / 2))
      .define("UNROLL", int64_t{2})
      .define("ACCUMULATOR", std::string_view(!sum    ? "Maximum"
                                              : plain ? "PlainSum"
                                                      : "Sum"))
      .define("COMBINE(a, b)", std::string_view(sum ? "((a) + (b))" : "maximum(a, b)"))
      .prelude(cuda_prelude())
      .insert("PARAMETERS", parameters)
      .insert("FIXED", fixed ? operands.loads(width, Which::fixed, "column") : "")
      .insert("LOADS", loads)
      .insert("STORES", stores)
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
  const auto outputs = context.outputs.begin();
  std::vector<std::byte*> operands(context.inputs.begin(),
                                   context.inputs.begin() + expression.inputs + expression.uses_random());
  operands.insert(operands.end(), outputs + s.outputs, context.outputs.end());
  const std::vector<std::byte*> sums(outputs, outputs + s.outputs);
  auto list = std::make_unique<LaunchList>(device);
  auto& step = list->kernel_of_pointers(module, "reduce", s.grid, s.block, operands);
  step.add_array(sums);
  step.add(context.workspace);
  if (s.columns) {
    step.add(list->counters(s.grid.x * s.grid.z));
  } else if (s.splits > 1) {
    auto& finish = list->kernel_of_pointers(
        module, "finish", {unsigned(divide_up(s.results, 32)), unsigned(s.outputs)}, {32, 8}, {});
    finish.add_array(sums);
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
