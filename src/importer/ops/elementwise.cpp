// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "engine/ops/softmax/softmax.h"
#include "engine/pointwise/activations.h"
#include "importer/operators.h"

namespace ren::importer {

namespace {

using Builder = ExpressionBuilder;
using Arguments = std::span<const ren::Value>;

OnnxValue unary(ImportContext& context, const OnnxValue& x,
                const std::function<ren::Value(Builder&, ren::Value)>& f) {
  return context.pointwise({x}, [&](Builder& e, Arguments v) { return f(e, v[0]); });
}

std::vector<OnnxValue> operands(const NodeView& node) {
  std::vector<OnnxValue> list;
  for (int i = 0; i < node.inputs(); ++i) list.push_back(node.required(i));
  return list;
}

}  // namespace

void import_activation(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  std::string name = node.proto.op_type();
  if (name == "Gelu") {
    const std::string form = node.text("approximate", "none");
    if (form == "tanh") {
      name = "GeluTanh";
    } else if (form != "none") {
      contradict("approximate '{}' is neither none nor tanh", form);
    }
  }
  const ActivationInfo* info = find_activation(name);
  require(info != nullptr, "no activation {}", name);
  const double alpha = node.real("alpha", info->alpha);
  const double beta = node.real(name == "Selu" ? "gamma" : "beta", info->beta);
  node.give(0, unary(node.context, x,
                     [&](Builder& e, ren::Value v) { return apply_activation(e, name, v, alpha, beta); }));
}

void import_prelu(const NodeView& node) {
  node.tensor_in(0);
  const Expression form = prelu();
  ImportContext::PointwiseOptions options;
  options.role = WeightRole::slope;
  options.kind = ParameterKind::scale;
  node.give(0, node.context.pointwise(
                   {node.in(0), node.required(1)},
                   [&](Builder& e, Arguments v) { return e.inline_expression(form, v)[0]; }, options));
}

void import_clip(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  double low = -std::numeric_limits<double>::infinity(), high = -low;
  if (node.opset < 11) {
    low = node.real("min", low);
    high = node.real("max", high);
  } else {
    if (node.has(1)) low = node.scalar_in(1);
    if (node.has(2)) high = node.scalar_in(2);
  }
  if (std::isnan(low) || std::isnan(high)) contradict("a bound is not a number");
  // The widest bounds of the type bound nothing.
  if (low <= -double(std::numeric_limits<float>::max())) low = -std::numeric_limits<double>::infinity();
  if (high >= double(std::numeric_limits<float>::max())) high = std::numeric_limits<double>::infinity();
  if (std::isinf(low) && std::isinf(high) && low < 0 && high > 0) return node.give(0, x);
  const Expression form = clip(low, high);
  node.give(0, unary(node.context, x, [&](Builder& e, ren::Value v) {
              const ren::Value arguments[] = {v};
              return e.inline_expression(form, arguments)[0];
            }));
}

void import_arithmetic(const NodeView& node) {
  const std::string& op = node.proto.op_type();
  std::vector<OnnxValue> list{node.required(0), node.required(1)};
  ImportContext::PointwiseOptions options;
  if (op == "Mul") options.role = WeightRole::mul_operand, options.kind = ParameterKind::scale;
  if (op == "Add") options.role = WeightRole::add_operand, options.kind = ParameterKind::bias;
  if (op == "Pow") {
    const HostValue exponent = node.host_in(1);
    if (!exponent.is_uniform()) refuse("", "the exponent has several values");
    const double p = exponent.at(0);
    return node.give(0, unary(node.context, node.tensor_in(0), [p](Builder& e, ren::Value v) {
                       if (p == 0.5) return e.apply(Prim::sqrt, v);
                       if (p == -0.5) return e.apply(Prim::rsqrt, v);
                       const double whole = std::fabs(p);
                       if (whole != std::floor(whole) || whole > 16 || whole == 0)
                         refuse("", "the exponent {} is not supported; whole numbers up to 16 and +-0.5 are",
                                p);
                       ren::Value power = v;
                       for (int i = 1; i < int(whole); ++i) power = e.mul(power, v);
                       return p < 0 ? e.apply(Prim::reciprocal, power) : power;
                     }));
  }
  node.give(0, node.context.pointwise(
                   list,
                   [&](Builder& e, Arguments v) {
                     if (op == "Add") return e.add(v[0], v[1]);
                     if (op == "Sub") return e.sub(v[0], v[1]);
                     if (op == "Mul") return e.mul(v[0], v[1]);
                     return e.div(v[0], v[1]);
                   },
                   options));
}

// Sum, Mean, Min, Max of any number of operands.
void import_variadic(const NodeView& node) {
  const std::string& op = node.proto.op_type();
  if (node.inputs() < 1) contradict("has no inputs");
  node.give(0, node.context.pointwise(operands(node), [&](Builder& e, Arguments v) {
    ren::Value result = v[0];
    for (size_t i = 1; i < v.size(); ++i)
      result = op == "Max"   ? e.maximum(result, v[i])
               : op == "Min" ? e.minimum(result, v[i])
                             : e.add(result, v[i]);
    return op == "Mean" ? e.mul(result, e.constant(1.0 / double(v.size()))) : result;
  }));
}

void import_unary(const NodeView& node) {
  node.give(0, unary(node.context, node.tensor_in(0), [](Builder& e, ren::Value v) {
              return e.sub(e.constant(1), v);  // Not, on 0 and 1
            }));
  node.context.values[node.proto.output(0)].boolean = true;
}

void import_compare(const NodeView& node) {
  const std::string& op = node.proto.op_type();
  ImportContext::PointwiseOptions options;
  options.boolean = true;
  node.give(0, node.context.pointwise(
                   {node.required(0), node.required(1)},
                   [&](Builder& e, Arguments v) {
                     if (op == "Less") return e.less(v[0], v[1]);
                     if (op == "Greater") return e.less(v[1], v[0]);
                     if (op == "LessOrEqual") return e.apply(Prim::less_equal, v[0], v[1]);
                     if (op == "GreaterOrEqual") return e.apply(Prim::less_equal, v[1], v[0]);
                     if (op == "And") return e.mul(v[0], v[1]);
                     if (op == "Or") return e.maximum(v[0], v[1]);
                     return e.apply(Prim::equal, v[0], v[1]);
                   },
                   options));
}

void import_where(const NodeView& node) {
  node.give(0, node.context.pointwise({node.required(0), node.required(1), node.required(2)},
                                      [](Builder& e, Arguments v) { return e.select(v[0], v[1], v[2]); }));
}

void import_dropout(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.required(0);
  if (node.wants(1)) refuse("", "the mask output is used");
  double ratio = 0.5;
  if (node.opset < 12) {
    ratio = node.real("ratio", 0.5);
  } else if (node.has(1)) {
    ratio = node.scalar_in(1);
  }
  if (!(ratio >= 0 && ratio < 1)) contradict("the ratio is {}", ratio);
  // Whether it drops follows from the engine's mode, not from the file's training_mode.
  if (node.has(2)) context.note_constant(node.in(2), "Dropout's mode");
  if (ratio == 0 || !x.is(Kind::tensor)) return node.give(0, x);
  ImportContext::PointwiseOptions options;
  options.training_only = true;
  const uint32_t stream = uint32_t(context.random_streams++);
  node.give(0, context.pointwise(
                   {x},
                   [&](Builder& e, Arguments v) {
                     const ren::Value kept =
                         e.apply(Prim::less_equal, e.constant(ratio), e.uniform(stream, false));
                     return e.select(kept, e.mul(v[0], e.constant(1.0 / (1.0 - ratio))), e.constant(0));
                   },
                   options));
}

void import_softmax(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.tensor_in(0);
  const bool log = node.proto.op_type() == "LogSoftmax";
  const int axis = node.axis(node.integer("axis", node.opset < 13 ? 1 : -1), x.rank());
  std::vector<int> over = x.map.axes[size_t(axis)];
  // Before version 13 everything from the axis on was one distribution.
  if (node.opset < 13)
    for (int a = axis + 1; a < x.rank(); ++a)
      over.insert(over.end(), x.map.axes[size_t(a)].begin(), x.map.axes[size_t(a)].end());
  for (const int atom : over)
    if (atom == x.map.batch) refuse("", "normalises over the batch");
  if (context.graph_outputs.count(node.proto.output(0)) && !context.consumers.count(node.proto.output(0)) &&
      axis == 1 && int64_t(x.map.extent(1)) == x.map.extent_of(over)) {
    context.note(fmt::format("the final {} '{}' is left off: the loss takes logits and contains it",
                             node.proto.op_type(), node.name));
    return node.give(0, x);
  }
  const OnnxValue rows = context.arrange(x, context.with_tail(x, over));
  const TensorId y = context.node(Op::softmax, {rows.id}, std::make_shared<SoftmaxAttributes>(log))[0];
  node.give(0, context.make_tensor(y, rows.map));
}

void import_cast(const NodeView& node) {
  OnnxValue x = node.required(0);
  if (node.proto.op_type() == "CastLike") {
    const OnnxValue& like = node.required(1);
    const bool real = like.is(Kind::tensor) ? !like.boolean : like.is(Kind::weight) || like.host->is_real();
    if (!real && !x.boolean) refuse("", "casts an activation to another kind of number");
  } else {
    const int64_t to = node.integer("to", 0);
    if (to == onnx::TensorProto::BOOL && !x.boolean) refuse("", "casts an activation to bool");
    if (!is_real_type(int(to)) && to != onnx::TensorProto::BOOL)
      refuse("", "casts an activation to {}", type_name(int(to)));
    if (is_real_type(int(to))) x.boolean = false;
  }
  node.give(0, x);
}

}  // namespace ren::importer
