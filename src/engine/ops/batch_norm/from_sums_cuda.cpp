// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/ops/batch_norm/from_sums.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 128;

// As in from_sums.cu.
struct Layer {
  const std::byte *sums, *squares;
  std::byte *running_mean, *running_variance;
  const std::byte* shift;
  std::byte *mean, *inverse_std;
  int32_t channels;
  float share, unbiased_rows, epsilon, keep;
};

KernelSource specialise() {
  KernelSource source("from_sums.cu");
  source.define("THREADS", int64_t{kThreads});
  return source;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise());
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const auto& attributes = context.node.as<BatchNormFromSumsAttributes>();
  std::vector<Layer> layers;
  unsigned blocks = 1;
  for (size_t i = 0; i < attributes.layers.size(); ++i) {
    const auto& is = attributes.layers[i];
    const auto* in = &context.inputs[i * LayerInput::kCount];
    const auto* out = &context.outputs[i * LayerOutput::kCount];
    const int64_t channels = context.graph.at(context.node.inputs[i * LayerInput::kCount]).shape.c;
    layers.push_back({in[LayerInput::kSums], in[LayerInput::kSquares], in[LayerInput::kMean],
                      in[LayerInput::kVariance], in[LayerInput::kShift], out[LayerOutput::kMean],
                      out[LayerOutput::kInverse], int32_t(channels), float(1.0 / double(is.rows)),
                      float(is.rows - 1), is.epsilon, is.keep});
    blocks = std::max(blocks, unsigned((channels + kThreads - 1) / kThreads));
  }
  require(layers.size() <= 65535, "{}: too many layers", context.node.name);
  auto list = std::make_unique<LaunchList>(device);
  list->kernel(device.kernels().request(specialise()), "batch_norm_from_sums",
               {blocks, unsigned(layers.size())}, {unsigned(kThreads)}, list->table(layers));
  return list;
}

}  // namespace

const OpBackend& batch_norm_from_sums_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
