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
  // in, out: the node's inputs and outputs (forward x, w and y, with sums also its sums and those of its
  // squares; backward_data dy, w and dx; backward_weights x, dy and dw).
  void launch(LaunchList&, CudaDevice&, std::byte* const* in, std::byte* const* out,
              std::byte* workspace) const;

 private:
  ConvolutionProblem problem_;
  KernelSource source_{"depthwise.cu"};
  Grid grid_, block_;
  // Sums for each channel that all blocks have parts of.
  int64_t sums_per_channel() const;
};

}  // namespace ren::cuda
