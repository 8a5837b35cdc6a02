// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/straighten.h"

namespace ren::cuda {
namespace {

struct GraphDelete {
  void operator()(cudaGraph_t g) const noexcept { cudaGraphDestroy(g); }
};
struct GraphExecDelete {
  void operator()(cudaGraphExec_t g) const noexcept { cudaGraphExecDestroy(g); }
};
using GraphHandle = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDelete>;
using GraphExec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphExecDelete>;

// All launches of a variant as one graph. The kernels live on: the graph refers to tables that they own.
class CudaProgram final : public Program {
 public:
  CudaProgram(CudaDevice& device, std::vector<std::unique_ptr<Kernel>> kernels)
      : device_(device), kernels_(std::move(kernels)) {
    capture();
  }

  void run() override {
    device_.before_launch();
    REN_CUDA_CHECK(cudaGraphLaunch(executable_.get(), device_.stream()));
    device_.after_program();
  }

 private:
  // Nothing runs, so weights, counters and moments stay as they are. Modules are loaded and libraries
  // allocate what they allocate at first within the capture, which its relaxed mode permits.
  void capture() {
    const cudaStream_t stream = device_.stream();
    device_.synchronize();
    REN_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    device_.set_capturing(true);
    for (const auto& kernel : kernels_) kernel->launch();
    device_.set_capturing(false);
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream, &graph);
    const GraphHandle owner(graph);
    device_.throw_failure();  // names the launch; the end of the capture only says that one failed
    check(status, "cudaStreamEndCapture");
    fills_ = straighten(graph, device_);
    cudaGraphExec_t executable = nullptr;
    REN_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    executable_.reset(executable);
    REN_CUDA_CHECK(cudaGraphUpload(executable, stream));
    device_.synchronize();
  }

  CudaDevice& device_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::shared_ptr<CompiledModule> fills_;
  GraphExec executable_;
};

}  // namespace

std::unique_ptr<Program> CudaDevice::make_program(std::vector<std::unique_ptr<Kernel>> kernels) {
  make_current();
  return std::make_unique<CudaProgram>(*this, std::move(kernels));
}

}  // namespace ren::cuda
