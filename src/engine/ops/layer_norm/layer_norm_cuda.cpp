// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/support/row_moments_cuda.h"

namespace ren {
namespace {

cuda::RowMoments moments_of(const Graph& graph, const Node& node) {
  const Tensor& x = graph.at(node.inputs[0]);
  return {x.dtype, x.shape.pixels(), x.shape.c, 1, node.as<LayerNormAttributes>().epsilon};
}

NodeChoice prepare(const PrepareContext& context) {
  return cuda::prepare_row_moments(cuda::cuda_device(context.device),
                                   moments_of(context.graph, context.node));
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  return cuda::bind_row_moments(context, moments_of(context.graph, context.node));
}

}  // namespace

const OpBackend& layer_norm_statistics_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
