// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/straighten.h"

#include <cuda.h>

#include <algorithm>
#include <vector>

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/launch.h"

namespace ren::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned long long kMostRows = 65535;  // of a grid, along y

// The runtime's own call doesn't take a kernel of a library (cudaKernel_t), which is the driver's CUkernel.
using AddKernelNode = CUresult(CUDAAPI*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                         const CUDA_KERNEL_NODE_PARAMS*);

AddKernelNode find_add_kernel_node() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  REN_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion("cuGraphAddKernelNode", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    fail(StatusCode::device, "the driver has no cuGraphAddKernelNode of CUDA 12; install a newer driver");
  return reinterpret_cast<AddKernelNode>(function);
}

// CUDA 13 has edge data among the arguments of these; a captured chain has none.
cudaError_t dependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependencies(node, nodes, nullptr, count);
#else
  return cudaGraphNodeGetDependencies(node, nodes, count);
#endif
}

cudaError_t dependents(cudaGraphNode_t node, cudaGraphNode_t* nodes, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependentNodes(node, nodes, nullptr, count);
#else
  return cudaGraphNodeGetDependentNodes(node, nodes, count);
#endif
}

cudaError_t add_dependency(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, &from, &to, nullptr, 1);
#else
  return cudaGraphAddDependencies(graph, &from, &to, 1);
#endif
}

template <typename Query>
std::vector<cudaGraphNode_t> neighbours(cudaGraphNode_t node, Query query) {
  size_t count = 0;
  REN_CUDA_CHECK(query(node, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count != 0) REN_CUDA_CHECK(query(node, nodes.data(), &count));
  return nodes;
}

unsigned pattern_of(const cudaMemsetParams& p) {
  return p.elementSize == 1   ? (p.value & 0xffu) * 0x01010101u
         : p.elementSize == 2 ? (p.value & 0xffffu) * 0x00010001u
                              : p.value;
}

class Straightener {
 public:
  Straightener(cudaGraph_t graph, CudaDevice& device)
      : graph_(graph), device_(device), add_kernel_node_(find_add_kernel_node()) {
    module_ = device.kernels().request(fill_source());
  }

  void replace(cudaGraphNode_t memset) {
    cudaMemsetParams p{};
    REN_CUDA_CHECK(cudaGraphMemsetNodeGetParams(memset, &p));
    unsigned long long rows = p.height, row_bytes = uint64_t(p.elementSize) * p.width, pitch = p.pitch;
    if (pitch == row_bytes) row_bytes *= rows, rows = 1;
    unsigned pattern = pattern_of(p);
    void* arguments[] = {&p.dst, &rows, &row_bytes, &pitch, &pattern};
    CUDA_KERNEL_NODE_PARAMS launch{};
    launch.kern = reinterpret_cast<CUkernel>(module_->kernel("fill"));
    launch.gridDimX = grid_for(device_, int64_t(row_bytes / 16 + 1), kThreads).x;
    launch.gridDimY = unsigned(std::min(rows, kMostRows));
    launch.gridDimZ = 1;
    launch.blockDimX = kThreads;
    launch.blockDimY = launch.blockDimZ = 1;
    launch.kernelParams = arguments;
    const auto before = neighbours(memset, dependencies), after = neighbours(memset, dependents);
    CUgraphNode kernel = nullptr;
    if (const CUresult status = add_kernel_node_(&kernel, graph_, before.data(), before.size(), &launch);
        status != CUDA_SUCCESS)
      fail(StatusCode::device, "cuGraphAddKernelNode fails with CUDA driver error {}", int(status));
    for (const cudaGraphNode_t next : after) REN_CUDA_CHECK(add_dependency(graph_, kernel, next));
    REN_CUDA_CHECK(cudaGraphDestroyNode(memset));
  }

  std::shared_ptr<CompiledModule> module() const { return module_; }

 private:
  cudaGraph_t graph_;
  CudaDevice& device_;
  AddKernelNode add_kernel_node_;
  std::shared_ptr<CompiledModule> module_;
};

}  // namespace

KernelSource fill_source() { return KernelSource("fill.cu"); }

std::shared_ptr<CompiledModule> straighten(cudaGraph_t graph, CudaDevice& device) {
  size_t count = 0;
  REN_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count), memsets;
  REN_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    REN_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeMemset) memsets.push_back(node);
  }
  if (memsets.empty()) return nullptr;
  Straightener straightener(graph, device);
  for (const cudaGraphNode_t node : memsets) straightener.replace(node);
  return straightener.module();
}

}  // namespace ren::cuda
