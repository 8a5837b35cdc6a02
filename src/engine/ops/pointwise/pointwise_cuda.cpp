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
  int64_t vectors = 0;
};

// One kernel for one expression, its sizes and types.
Specialised specialise(const Graph& graph, const Node& node) {
  const Operands operands(graph, node, node.as<PointwiseAttributes>().expression);
  const int64_t elements = operands.full().elements();
  int width = operands.natural_width();
  for (const TensorId id : node.outputs)
    if (id != kNoTensor) width = std::max(width, elements_in_16_bytes(graph.at(id).dtype));
  width = operands.widest(width);

  std::vector<std::string> values;
  std::string evaluate = operands.evaluate(values);
  std::string parameters = operands.parameters(), loads = operands.loads(width), set, stores;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] == kNoTensor) continue;
    const char* type = name_of(graph.at(node.outputs[k]).dtype);
    parameters += fmt::format("{}* y{}, ", type, k);
    loads += fmt::format("Vec<{}, {}> r{};\n", type, width, k);
    set += fmt::format("r{}.set(v, {});\n", k, values[k]);
    stores += fmt::format("r{0}.store(y{0} + e);\n", k);
  }
  parameters.resize(parameters.size() - 2);
  Specialised result;
  result.vectors = elements / width;
  result.source.index_type(elements)
      .define("THREADS", int64_t{kThreads})
      .define("V", int64_t{width})
      .define("VECTORS", result.vectors)
      .prelude(cuda_prelude())
      .insert("PARAMETERS", parameters)
      .insert("LOADS", loads)
      .insert("EVALUATE", evaluate)
      .insert("SET", set)
      .insert("STORES", stores);
  return result;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.graph, context.node).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised kernel = specialise(context.graph, context.node);
  const auto& expression = context.node.as<PointwiseAttributes>().expression;
  std::vector<std::byte*> pointers(context.inputs.begin(),
                                   context.inputs.begin() + expression.inputs + expression.uses_random());
  for (size_t k = 0; k < context.node.outputs.size(); ++k)
    if (context.node.outputs[k] != kNoTensor) pointers.push_back(context.outputs[k]);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel_of_pointers(device.kernels().request(kernel.source), "pointwise",
                           grid_for(device, kernel.vectors, kThreads), {kThreads}, pointers);
  return list;
}

}  // namespace

const OpBackend& pointwise_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
