// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/load_batch/load_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device/cuda/launch.h"
#include "engine/ir/batch_mix.h"
#include "engine/ops/support/operands_cuda.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256;

struct Specialised {
  KernelSource source{"load_batch.cu"};
  int64_t vectors = 0;
};

std::string float_table(const char* name, const std::vector<float>& values) {
  std::string text;
  for (const float v : values) text += float_literal(v) + ", ";
  return fmt::format("__constant__ const float {}[] = {{{}}};\n", name, text);
}

// Where each record scalar lies in the record, in words, and how many words it has.
std::string record_tables() {
  std::string offsets, components;
  for (int i = 0; i < kScalarCount; ++i) {
    if (kScalars[i].source != ScalarSource::record) continue;
    offsets += fmt::format("{}, ", record_offset(Scalar(i)) / 4);
    components += fmt::format("{}, ", kScalars[i].components);
  }
  return fmt::format("__constant__ const int kOffset[] = {{{}}}, kComponents[] = {{{}}};\n", offsets,
                     components);
}

int64_t record_scalars() {
  return std::count_if(std::begin(kScalars), std::end(kScalars),
                       [](const ScalarInfo& s) { return s.source == ScalarSource::record; });
}

Specialised specialise(const Graph& graph, const Node& node) {
  const auto& a = node.as<LoadBatchAttributes>();
  const Tensor &x = graph.at(node.inputs[2]), &y = graph.at(node.outputs[0]);
  const int64_t elements = x.shape.elements();
  require(int64_t(a.mean.size()) == x.shape.c && int64_t(a.scale.size()) == x.shape.c,
          "load_batch: {} means and {} scales for {} channels", a.mean.size(), a.scale.size(), x.shape.c);
  // One thread writes whole padded pixels, or runs of elements where nothing is padded.
  const bool padded = y.shape.c != x.shape.c;
  // Mixed, a vector's partner begins a sample before it.
  const int64_t run = a.mixes ? elements / x.shape.n : elements;
  const int width = padded ? int(y.shape.c) : power_of_two_in(run, elements_in_16_bytes(y.dtype));
  require(!padded || y.shape.c == 4, "load_batch: images of {} channels cannot be padded to {}", x.shape.c,
          y.shape.c);
  const bool labels = node.outputs.size() > 1 && node.outputs[1] != kNoTensor;
  Specialised s;
  s.vectors = y.shape.elements() / width;
  s.source.index_type(y.shape.elements())
      .define("X", x.dtype)
      .define("Y", y.dtype)
      .define("V", int64_t{width})
      .define("C", x.shape.c)
      .define("PADDED", int64_t{padded})
      .define("VECTORS", s.vectors)
      .define("LABELS", labels ? graph.at(node.outputs[1]).shape.elements() : 0)
      .define("RECORD_SCALARS", record_scalars())
      .insert("CHANNEL_TABLES", float_table("kMean", a.mean) + float_table("kScale", a.scale))
      .insert("RECORD_TABLES", record_tables());
  s.source.define("MIXES", int64_t{a.mixes});
  if (a.mixes)
    s.source.define("SAMPLE_VECTORS", s.vectors / x.shape.n)
        .define("SAMPLE_LABELS", graph.at(node.outputs[1]).shape.elements() / x.shape.n)
        .define("HEIGHT", x.shape.h)
        .define("WIDTH", x.shape.w)
        .define("MIX_WORD", int64_t{kMixOffset / 4});
  return s;
}

NodeChoice prepare(const PrepareContext& context) {
  cuda_device(context.device).kernels().request(specialise(context.graph, context.node).source);
  return {"own", 0, {}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Specialised s = specialise(context.graph, context.node);
  const auto pointers = [](std::span<std::byte* const> from, size_t begin, size_t count) {
    std::vector<std::byte*> result(count, nullptr);
    for (size_t i = 0; i < count && begin + i < from.size(); ++i) result[i] = from[begin + i];
    return result;
  };
  auto list = std::make_unique<LaunchList>(device);
  auto& launch = list->kernel_of_pointers(device.kernels().request(s.source), "load_batch",
                                          grid_for(device, s.vectors, kThreads), {kThreads}, {})
                     .add_array(pointers(context.inputs, 0, 3))
                     .add_array(pointers(context.inputs, 3, 3))
                     .add(context.inputs[6])
                     .add(context.outputs[0])
                     .add(pointers(context.outputs, 1, 1)[0])
                     .add_array(pointers(context.outputs, 2, size_t(record_scalars())));
  if (context.node.as<LoadBatchAttributes>().mixes)
    for (std::byte* output : pointers(context.outputs, 2 + size_t(record_scalars()), 2)) launch.add(output);
  return list;
}

}  // namespace

const OpBackend& load_batch_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
