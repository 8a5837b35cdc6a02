// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/pointwise/pointwise.h"

namespace ren {
namespace {

// Builds y = (x - mean) * inverse_std * scale + bias; scale and bias may be absent.
class NormExpression {
 public:
  explicit NormExpression(TensorId x) { x_ = operand(x); }

  void by_statistics(TensorId mean, TensorId inverse_std) {
    y_ = e_.mul(e_.sub(x_, operand(mean)), operand(inverse_std));
  }
  void by_running_statistics(TensorId mean, TensorId variance, float epsilon) {
    const Value inverse = e_.apply(Prim::rsqrt, e_.add(operand(variance), e_.constant(epsilon)));
    y_ = e_.mul(e_.sub(x_, operand(mean)), inverse);
  }
  void affine(TensorId scale, TensorId bias) {
    if (scale != kNoTensor) y_ = e_.mul(y_, operand(scale));
    if (bias != kNoTensor) y_ = e_.add(y_, operand(bias));
  }
  Node node(const Node& norm) const {
    Node out;
    out.op = Op::pointwise;
    out.phase = norm.phase;
    out.name = norm.name;
    out.inputs = operands_;
    out.outputs = {norm.outputs[0]};
    out.attributes = std::make_shared<PointwiseAttributes>(e_.finish({y_}, int(operands_.size())));
    return out;
  }

 private:
  Value operand(TensorId id) {
    operands_.push_back(id);
    return e_.input(int(operands_.size()) - 1);
  }
  ExpressionBuilder e_;
  std::vector<TensorId> operands_;
  Value x_ = -1, y_ = -1;
};

Node statistics(const Node& norm, Op op, std::vector<TensorId> inputs) {
  Node out;
  out.op = op;
  out.phase = norm.phase;
  out.name = norm.name;
  out.inputs = std::move(inputs);
  out.outputs = {norm.outputs[1], norm.outputs[2]};
  out.attributes = norm.attributes;
  return out;
}

TensorId input(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoTensor; }

std::vector<TensorId> statistics_inputs(const Node& norm) {
  std::vector<TensorId> inputs{norm.inputs[0], input(norm, 3), input(norm, 4)};
  if (input(norm, 5) != kNoTensor) inputs.push_back(input(norm, 5));
  return inputs;
}

void lower_batch_norm(const Node& norm, std::vector<Node>& out) {
  const auto& attributes = norm.as<BatchNormAttributes>();
  NormExpression y(norm.inputs[0]);
  if (attributes.training) {
    out.push_back(statistics(norm, Op::batch_norm_statistics, statistics_inputs(norm)));
    y.by_statistics(norm.outputs[1], norm.outputs[2]);
  } else {
    y.by_running_statistics(input(norm, 3), input(norm, 4), attributes.epsilon);
  }
  y.affine(input(norm, 1), input(norm, 2));
  out.push_back(y.node(norm));
}

void lower_sample_norm(const Node& norm, Op statistics_op, std::vector<Node>& out) {
  out.push_back(statistics(norm, statistics_op, {norm.inputs[0]}));
  NormExpression y(norm.inputs[0]);
  y.by_statistics(norm.outputs[1], norm.outputs[2]);
  y.affine(input(norm, 1), input(norm, 2));
  out.push_back(y.node(norm));
}

// Statistics may be impossible at this batch size (one value a channel): the op says so.
void check_statistics(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const TensorId id : node.inputs)
    types.push_back(id == kNoTensor ? TensorType{{0, 0, 0, 0}, DType::f32} : graph.at(id).type());
  try {
    definition_of(node.op).infer(node, types);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{} '{}': {}", name_of(node.op), node.name, e.what()), name_of(node.op),
                node.name);
  }
}

}  // namespace

void lower(Graph& graph, const PassContext&) {
  std::vector<Node> out;
  out.reserve(graph.nodes.size() * 2);
  for (Node& node : graph.nodes) {
    switch (node.op) {
      case Op::batch_norm:
        lower_batch_norm(node, out);
        break;
      case Op::layer_norm:
        lower_sample_norm(node, Op::layer_norm_statistics, out);
        break;
      case Op::group_norm:
        lower_sample_norm(node, Op::group_norm_statistics, out);
        break;
      default:
        out.push_back(std::move(node));
    }
  }
  for (const Node& node : out)
    if (node.op == Op::batch_norm_statistics) check_statistics(graph, node);
  graph.nodes = std::move(out);
}

}  // namespace ren
