// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/slot.h"

namespace ren {
namespace {

constexpr uint64_t round_up(int64_t value, uint64_t multiple) {
  return (uint64_t(value) + multiple - 1) / multiple * multiple;
}

}  // namespace

uint64_t padded_elements(const Tensor& tensor, const PlanOptions& options, bool image) {
  const bool computed = tensor.region == Region::F || tensor.region == Region::T;
  if (!options.channel_padding || !computed || size_of(tensor.dtype) == 4)
    return uint64_t(tensor.shape.elements());
  const uint64_t multiple = image && is_16bit(tensor.dtype) ? 4 : 8;
  return uint64_t(tensor.shape.pixels()) * round_up(tensor.shape.c, multiple);
}

uint64_t padded_elements(const Parameter& parameter, const PlanOptions& options, bool image) {
  const Shape& s = parameter.shape;
  if (!options.channel_padding || !is_16bit(options.compute_type)) return uint64_t(s.elements());
  const uint64_t k = parameter.kind == ParameterKind::weight ? round_up(s.n, 8) : uint64_t(s.n);
  return k * uint64_t(s.h * s.w) * round_up(s.c, image ? 4 : 8);
}

uint64_t tensor_bytes(const Tensor& tensor, const PlanOptions& options, bool image) {
  const uint64_t elements = padded_elements(tensor, options, image);
  return tensor.region == Region::I ? align_up(elements * size_of(tensor.dtype))
                                    : slot_bytes(tensor.dtype, elements);
}

std::vector<bool> parameters_that_meet_images(const Graph& graph) {
  std::vector<bool> result(graph.parameters.size(), false);
  if (graph.input == kNoTensor) return result;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::conv || node.inputs.size() < 2 || node.inputs[0] == kNoTensor ||
        node.inputs[1] == kNoTensor)
      continue;
    const int32_t parameter = graph.at(graph.storage(node.inputs[1])).parameter;
    if (parameter >= 0 && graph.storage(node.inputs[0]) == graph.storage(graph.input))
      result[size_t(parameter)] = true;
  }
  return result;
}

}  // namespace ren
