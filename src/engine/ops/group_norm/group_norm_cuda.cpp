// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/support/extents_cuda.h"
#include "engine/ops/support/row_moments_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr uint64_t kMomentsBytes = 12;  // as in moments.cuh

// The lanes of a warp for a group of so many values.
int64_t lanes_for(int64_t values) {
  int64_t lanes = 1;
  while (lanes < 32 && lanes < values) lanes *= 2;
  return lanes;
}

// One group holds neighbouring elements: a sample is a row.
RowMoments whole_samples(const Tensor& x, const GroupNormAttributes& a) {
  return {x.dtype, x.shape.n, x.shape.h * x.shape.w * x.shape.c, x.shape.c, a.epsilon};
}

struct Specialised {
  KernelSource source{"group_norm.cu"};
  Grid columns, block, groups;
  uint64_t workspace = 0;
};

Specialised specialise(const Tensor& x, const GroupNormAttributes& a, const CudaDevice& device) {
  const Shape& s = x.shape;
  const int64_t pixels = s.h * s.w, per_group = s.c / a.groups;
  int width = power_of_two_in(s.c, elements_in_16_bytes(x.dtype));
  while (width > 1 && s.elements() / width < int64_t(device.processors()) * 256) width /= 2;
  int64_t tx = 32;
  while (tx > 1 && tx / 2 * width >= s.c) tx /= 2;
  const int64_t ty = 256 / tx, tiles = divide_up(s.c, tx * width);
  const int64_t wanted = std::clamp<int64_t>(int64_t(device.processors()) * 4 / (tiles * s.n), 1,
                                             std::max<int64_t>(pixels / (ty * 8), 1));
  const int64_t chunk = divide_up(divide_up(pixels, wanted), ty) * ty;
  const int64_t splits = divide_up(pixels, chunk), lanes = lanes_for(splits * per_group);

  Specialised result;
  result.workspace = uint64_t(s.n * splits * s.c) * kMomentsBytes;
  result.columns = {unsigned(s.n * splits * tiles)};
  result.block = {unsigned(tx), unsigned(ty)};
  result.groups = {unsigned(divide_up(s.n * a.groups * lanes, 256))};
  result.source.index_type(std::max(s.elements(), s.n * splits * s.c))
      .define("X", x.dtype)
      .define("N", s.n)
      .define("HW", pixels)
      .define("C", s.c)
      .define("PER_GROUP", per_group)
      .define("V", int64_t{width})
      .define("TX", tx)
      .define("TY", ty)
      .define("TILES", tiles)
      .define("SPLITS", splits)
      .define("CHUNK", chunk)
      .define("LANES", lanes)
      .define("EPSILON", a.epsilon)
      .prelude(embedded_source("moments.cuh"));
  return result;
}

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Tensor& x = context.graph.at(context.node.inputs[0]);
  const auto& a = context.node.as<GroupNormAttributes>();
  if (a.groups == 1) return prepare_row_moments(device, whole_samples(x, a));
  const Specialised s = specialise(x, a, device);
  device.kernels().request(s.source);
  return {"own", s.workspace, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Tensor& x = context.graph.at(context.node.inputs[0]);
  const auto& a = context.node.as<GroupNormAttributes>();
  if (a.groups == 1) return bind_row_moments(context, whole_samples(x, a));
  const Specialised s = specialise(x, a, device);
  require(s.workspace <= context.choice.workspace_bytes, "{}: workspace too small", context.node.name);
  const auto module = device.kernels().request(s.source);
  std::byte* mean = context.outputs.empty() ? nullptr : context.outputs[0];
  std::byte* inverse_std = context.outputs.size() > 1 ? context.outputs[1] : nullptr;
  auto list = std::make_unique<LaunchList>(device);
  list->kernel(module, "channels", s.columns, s.block, context.inputs[0], context.workspace);
  list->kernel(module, "groups", s.groups, {256}, mean, inverse_std, context.workspace);
  return list;
}

KernelSource specialise_sum(const Graph& graph, const Node& node) {
  const Tensor& x = graph.at(node.inputs[0]);
  const int64_t groups = node.as<GroupNormAttributes>().groups, per_group = x.shape.c / groups;
  KernelSource source("group_sum.cu");
  source.index_type(x.shape.elements())
      .define("X", x.dtype)
      .define("GROUPS", x.shape.n * groups)
      .define("PER_GROUP", per_group)
      .define("LANES", lanes_for(per_group));
  return source;
}

NodeChoice prepare_sum(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise_sum(context.graph, context.node));
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind_sum(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Shape& s = context.graph.at(context.node.inputs[0]).shape;
  const int64_t groups = context.node.as<GroupNormAttributes>().groups;
  auto list = std::make_unique<LaunchList>(device);
  list->kernel(device.kernels().request(specialise_sum(context.graph, context.node)), "group_sum",
               {unsigned(divide_up(s.n * groups * lanes_for(s.c / groups), 256))}, {256}, context.inputs[0],
               context.outputs[0]);
  return list;
}

}  // namespace

const OpBackend& group_norm_statistics_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& group_sum_cuda() {
  static const OpBackend backend{prepare_sum, bind_sum};
  return backend;
}

}  // namespace ren
