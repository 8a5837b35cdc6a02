// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "engine/device/cuda/convolution.h"
#include "engine/device/cuda/launch.h"

namespace ren::cuda {

// Depthwise convolutions in 16 bits with small square filters, for which the library is slow: kernels of our
// own (depthwise.cu), in all three directions.
class Depthwise {
 public:
  static constexpr std::string_view kEngine = "own:depthwise";
  static bool serves(const ConvolutionProblem&);

  Depthwise(const ConvolutionProblem&, const CudaDevice&);
  const KernelSource& source() const { return source_; }
  uint64_t workspace() const;
  // in: the node's inputs (forward x, w; backward_data dy, w; backward_weights x, dy).
  void launch(LaunchList&, CudaDevice&, std::byte* const* in, std::byte* out, std::byte* workspace) const;

 private:
  ConvolutionProblem problem_;
  KernelSource source_{"depthwise.cu"};
  Grid grid_, block_;
  int64_t weights() const { return problem_.r * problem_.s * problem_.c; }
};

}  // namespace ren::cuda
