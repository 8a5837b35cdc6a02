// SPDX-License-Identifier: Apache-2.0
#include "engine/ir/builder.h"

#include "engine/base/status.h"

namespace ren {

TensorId GraphBuilder::tensor(std::string name, TensorType type, Region region) {
  Tensor t;
  t.name = std::move(name);
  t.shape = type.shape;
  t.dtype = type.dtype;
  t.region = region;
  graph_.tensors.push_back(std::move(t));
  return TensorId(graph_.tensors.size()) - 1;
}

TensorId GraphBuilder::parameter(Parameter parameter) {
  const TensorId id = tensor(parameter.name, {parameter.shape, DType::f32}, Region::W);
  graph_.at(id).parameter = int32_t(graph_.parameters.size());
  parameter.value = id;
  graph_.parameters.push_back(std::move(parameter));
  return id;
}

TensorId GraphBuilder::buffer(std::string name, Shape shape) {
  const TensorId id = tensor(name, {shape, DType::f32}, Region::B);
  graph_.buffers.push_back({std::move(name), id});
  return id;
}

TensorId GraphBuilder::family_tensor(int parameter, Region family, DType dtype) {
  require(is_parameter_family(family), "region {} holds no parameter slots", name_of(family));
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& t = graph_.tensors[i];
    if (t.region == family && t.parameter == parameter && t.alias_of == kNoTensor) return TensorId(i);
  }
  const Parameter& p = graph_.parameters[size_t(parameter)];
  const TensorId id = tensor(p.name, {p.shape, dtype}, family);
  graph_.at(id).parameter = parameter;
  return id;
}

void GraphBuilder::add_scalars() {
  if (!graph_.scalars.empty()) return;
  for (const ScalarInfo& info : kScalars)
    graph_.scalars.push_back(tensor(info.name, {{1, 1, 1, info.components}, info.type}, Region::S));
}

std::vector<TensorId> GraphBuilder::node(Op op, std::string name, std::vector<TensorId> inputs,
                                         const std::vector<TensorType>& outputs, AttributesPtr attributes) {
  Node node;
  node.op = op;
  node.phase = phase_;
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string suffix = outputs.size() > 1 ? fmt::format(".{}", i) : std::string();
    const TensorId id = tensor(fmt::format("{}:{}{}", node.name, name_of(op), suffix), outputs[i]);
    if (op == Op::view) {
      graph_.at(id).alias_of = node.inputs[0];
      graph_.at(id).region = graph_.at(node.inputs[0]).region;
      graph_.at(id).parameter = graph_.at(node.inputs[0]).parameter;
    }
    node.outputs.push_back(id);
  }
  const std::vector<TensorId> ids = node.outputs;
  graph_.nodes.push_back(std::move(node));
  return ids;
}

}  // namespace ren
