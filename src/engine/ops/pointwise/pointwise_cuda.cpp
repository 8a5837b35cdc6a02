// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pointwise/pointwise.h"

#include <fmt/format.h>

#include "engine/device/cuda/launch.h"
#include "engine/ops/support/operands_cuda.h"
#include "engine/pointwise/cuda_source.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256;

struct Specialised {
  KernelSource source{"pointwise.cu"};
  Grid grid;
};

// One kernel for one expression, its sizes and types.
Specialised specialise(const Graph& graph, const Node& node, const CudaDevice& device) {
  const Operands operands(graph, node);
  const int64_t elements = operands.full().elements();
  int width = operands.natural_width();
  for (const TensorId id : node.outputs)
    if (id != kNoTensor) width = std::max(width, elements_in_16_bytes(graph.at(id).dtype));
  width = operands.widest(width);
  for (const TensorId id : node.outputs)
    require(id == kNoTensor || graph.at(id).dtype != DType::b1 || width == 8, "{}: a mask at width {}",
            node.name, width);

  std::vector<std::string> values;
  std::string evaluate = operands.evaluate(values);
  const int64_t vectors = elements / width;
  Specialised result;
  result.grid = grid_for(device, vectors, kThreads);
  using Which = Operands::Which;
  const bool fixed = align_grid(result.grid, kThreads * width, operands.innermost());
  std::string parameters = operands.parameters(), set, stores;
  std::string loads = operands.loads(width, fixed ? Which::varying : Which::all);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] == kNoTensor) continue;
    const char* type = name_of(graph.at(node.outputs[k]).dtype);
    parameters += fmt::format("{}* y{}, ", type, k);
    loads += fmt::format("float r{}[{}];\n", k, width);
    set += fmt::format("r{}[v] = {};\n", k, values[k]);
    const char* place = graph.at(node.outputs[k]).dtype == DType::b1 ? "e / 8" : "e";
    stores += fmt::format("Vec<{0}, {1}>::pack(r{2}).store(y{2} + {3});\n", type, width, k, place);
  }
  parameters.resize(parameters.size() - 2);
  result.source.index_type(elements)
      .define("THREADS", int64_t{kThreads})
      .define("V", int64_t{width})
      .define("VECTORS", vectors)
      .define("BLOCKS", int64_t{result.grid.x})
      .prelude(cuda_prelude())
      .insert("PARAMETERS", parameters)
      .insert("FIXED", fixed ? operands.loads(width, Which::fixed, "fixed") : "")
      .insert("LOADS", loads)
      .insert("EVALUATE", evaluate)
      .insert("SET", set)
      .insert("STORES", stores);
  return result;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device)
      .kernels()
      .request(specialise(context.graph, context.node, cuda_device(context.device)).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised kernel = specialise(context.graph, context.node, device);
  const auto& expression = context.node.as<PointwiseAttributes>().expression;
  std::vector<std::byte*> pointers(context.inputs.begin(),
                                   context.inputs.begin() + expression.inputs + expression.uses_random());
  for (size_t k = 0; k < context.node.outputs.size(); ++k)
    if (context.node.outputs[k] != kNoTensor) pointers.push_back(context.outputs[k]);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel_of_pointers(device.kernels().request(kernel.source), "pointwise", kernel.grid, {kThreads},
                           pointers);
  return list;
}

}  // namespace

const OpBackend& pointwise_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
