// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/conv/depthwise_cuda.h"

#include <algorithm>

#include "engine/ops/support/extents_cuda.h"

namespace ren::cuda {
namespace {

constexpr int64_t kThreads = 128;  // with up to 168 registers each: three blocks a processor
constexpr int64_t kPair = 2, kStrip = 4, kSharers = 32;

int64_t strips(const ConvolutionProblem& p) {
  return p.n * divide_up(p.kind == ConvolutionKind::backward_data ? p.w : p.q, kStrip);
}

}  // namespace

// The filter and a strip of results have to stay in registers.
bool Depthwise::serves(const ConvolutionProblem& p) {
  const bool square = p.r == p.s && (p.r == 3 || p.r == 5) && p.stride_h == p.stride_w && p.stride_h <= 2;
  const bool dense = p.dilation_h == 1 && p.dilation_w == 1 && p.pad_left < p.s && p.pad_top < p.r;
  return square && dense && p.groups == p.c && p.k == p.c && p.c % kPair == 0 && is_16bit(p.x_type) &&
         is_16bit(p.y_type);
}

// Lanes lie along pairs of channels, the rows of a block share out strips of columns.
Depthwise::Depthwise(const ConvolutionProblem& p, const CudaDevice& device) : problem_(p) {
  const bool backward_weights = p.kind == ConvolutionKind::backward_weights;
  const int64_t pairs = p.c / kPair, groups = divide_up(pairs, kThreads), lanes = divide_up(pairs, groups);
  const int64_t rows = kThreads / lanes, most = divide_up(strips(p), rows);
  // Sums over all pixels stay in registers, for as many strips as there are for a thread.
  const int64_t blocks =
      std::min(most, divide_up(int64_t(device.processors()) * (sums_per_channel() > 0 ? 6 : 24), groups));
  block_ = {unsigned(lanes), unsigned(rows)};
  grid_ = {unsigned(blocks), unsigned(groups)};
  source_.index_type(std::max(p.n * p.h * p.w * p.c, p.n * p.p * p.q * p.k))
      .define("DIRECTION", int64_t(p.kind))
      .define("X", p.x_type)
      .define("WT", backward_weights ? p.x_type : p.w_type)
      .define("DW", backward_weights ? p.w_type : DType::f32)
      .define("Y", p.y_type)
      .define("N", p.n)
      .define("H", p.h)
      .define("W", p.w)
      .define("C", p.c)
      .define("R", p.r)
      .define("S", p.s)
      .define("P", p.p)
      .define("Q", p.q)
      .define("STRIDE_H", p.stride_h)
      .define("STRIDE_W", p.stride_w)
      .define("PAD_TOP", p.pad_top)
      .define("PAD_LEFT", p.pad_left)
      .define("LANES", lanes)
      .define("ROWS", rows)
      .define("SUMS", int64_t(p.sums))
      .define("PIECES", blocks)
      .define("T", kStrip);
}

int64_t Depthwise::sums_per_channel() const {
  if (problem_.kind == ConvolutionKind::backward_weights) return problem_.r * problem_.s;
  return problem_.sums ? 2 : 0;
}

uint64_t Depthwise::workspace() const { return uint64_t(grid_.x * sums_per_channel() * problem_.c) * 4; }

void Depthwise::launch(LaunchList& list, CudaDevice& device, std::byte* const* in, std::byte* const* out,
                       std::byte* workspace) const {
  const auto module = device.kernels().request(source_);
  const Grid added{unsigned(divide_up(sums_per_channel() * problem_.c, 32))}, sharers{32, unsigned(kSharers)};
  switch (problem_.kind) {
    case ConvolutionKind::forward:
      list.kernel(module, "depthwise_forward", grid_, block_, in[0], in[1], out[0], workspace);
      if (problem_.sums)
        list.kernel(module, "depthwise_add_parts", added, sharers, workspace, out[1], out[2]);
      break;
    case ConvolutionKind::backward_data:
      list.kernel(module, "depthwise_backward_data", grid_, block_, in[0], in[1], out[0]);
      break;
    case ConvolutionKind::backward_weights:
      list.kernel(module, "depthwise_backward_weights", grid_, block_, in[0], in[1], workspace);
      list.kernel(module, "depthwise_add_parts", added, sharers, workspace, out[0]);
      break;
  }
}

}  // namespace ren::cuda
