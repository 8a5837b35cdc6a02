// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/device/cuda/launch.h"
#include "engine/ops/op.h"

namespace ren::cuda {

// A launch, 256 threads a block, of the kernel that is named like the node's op, with its first input and its
// first output.
struct OneKernel {
  explicit OneKernel(std::string_view file) : source(file) {}
  KernelSource source;
  unsigned blocks = 1;
};

template <OneKernel (*specialise)(const Graph&, const Node&, const CudaDevice&)>
const OpBackend& one_kernel() {
  static const OpBackend backend{
      [](const PrepareContext& context) {
        CudaDevice& device = cuda_device(context.device);
        device.kernels().request(specialise(context.graph, context.node, device).source);
        return NodeChoice{"own", 0, {}};
      },
      [](const BindContext& context) -> std::unique_ptr<Kernel> {
        CudaDevice& device = cuda_device(context.device);
        const OneKernel one = specialise(context.graph, context.node, device);
        auto list = std::make_unique<LaunchList>(device);
        list->kernel(device.kernels().request(one.source), name_of(context.node.op), {one.blocks}, {256},
                     context.inputs[0], context.outputs[0]);
        return list;
      }};
  return backend;
}

}  // namespace ren::cuda
