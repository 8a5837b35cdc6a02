// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/reduce/reduce.h"

#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "engine/ops/pointwise/operands.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  const auto& a = node.as<ReduceAttributes>();
  const Shape full = infer_operands(node, inputs);
  const Shape target{a.n ? full.n : 1, a.h ? full.h : 1, a.w ? full.w : 1, a.c ? full.c : 1};
  std::vector<TensorType> types(a.reduced(), {target, DType::f32});
  for (const DType type : a.stored) types.push_back({full, type});
  return types;
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<ReduceAttributes>();
  const bool max = a.kind == ReduceKind::max;
  Shape target;
  Shape full;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    if (!call.outputs[k]) continue;
    (k < a.reduced() ? target : full) = call.output_shape(k);
    if (k < a.reduced())
      call.outputs[k]->assign(size_t(target.elements()),
                              max ? -std::numeric_limits<double>::infinity() : 0.0);
  }
  for_each_element(call, [&](int64_t n, int64_t h, int64_t w, int64_t c, const std::vector<double>& values) {
    const size_t i = index_of(target, n % target.n, h % target.h, w % target.w, c % target.c);
    for (size_t k = 0; k < values.size(); ++k) {
      if (!call.outputs[k]) continue;
      if (k >= a.reduced()) {
        (*call.outputs[k])[index_of(full, n, h, w, c)] = values[k];
        continue;
      }
      double& y = (*call.outputs[k])[i];
      y = max ? apply_prim(Prim::max, y, values[k], 0) : y + values[k];
    }
  });
}

// The prologue's values v_k, over the operands x0.. of the node.
std::vector<Value> prologue(ExpressionBuilder& e, const Expression& expression) {
  std::vector<Value> arguments;
  for (int i = 0; i < expression.inputs; ++i) arguments.push_back(e.input(i));
  return e.inline_expression(expression, arguments);
}

// Counts, for each maximum, the elements that reach it: torch.amax shares its gradient among them
// evenly. The prologue is computed again, to the same bits (every primitive rounds by itself).
std::vector<TensorId> emit_counts(GradientContext& context, const Expression& expression,
                                  const std::vector<TensorId>& operands, const std::vector<TensorId>& maxima,
                                  TensorId random_state) {
  const auto& a = context.node().as<ReduceAttributes>();
  ExpressionBuilder e;
  const std::vector<Value> v = prologue(e, expression);
  std::vector<Value> hits;
  for (size_t k = 0; k < v.size(); ++k)
    hits.push_back(e.apply(Prim::equal, v[k], e.input(expression.inputs + int(k))));
  std::vector<TensorId> inputs = operands;
  inputs.insert(inputs.end(), maxima.begin(), maxima.end());
  if (expression.uses_random()) inputs.push_back(random_state);
  return emit_sum(context, context.node().name + ".ties", e.finish(hits, expression.inputs + int(v.size())),
                  inputs, {a.n, a.h, a.w, a.c});
}

void gradient(GradientContext& context) {
  const Node node = context.node();
  const auto& a = node.as<ReduceAttributes>();
  require(a.stored.empty() && a.views.empty(),
          "{}: only passes after autodiff store in a reduction or view operands", node.name);
  std::vector<TensorId> operands(node.inputs.begin(), node.inputs.begin() + a.expression.inputs);
  const Shape full = broadcast_shape(context.graph(), operands);
  const TensorId random_state = a.expression.uses_random() ? node.inputs[operands.size()] : kNoTensor;
  std::vector<int> flowing, wanted;
  std::vector<TensorId> gradients, results;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const TensorId dy = context.output_gradient(k);
    if (dy == kNoTensor) continue;
    flowing.push_back(int(k));
    gradients.push_back(dy);
    results.push_back(node.outputs[k]);
  }
  for (int i = 0; i < a.expression.inputs; ++i)
    if (is_wanted(context, size_t(i))) wanted.push_back(i);
  if (flowing.empty() || wanted.empty()) return;

  // Operands of the gradient: x.., dy.., and for a maximum y.., count..
  const Expression expression = select_outputs(a.expression, flowing);
  const int n = expression.inputs, m = int(flowing.size());
  std::vector<TensorId> counts;
  if (a.kind == ReduceKind::max) counts = emit_counts(context, expression, operands, results, random_state);
  operands.insert(operands.end(), gradients.begin(), gradients.end());
  if (a.kind == ReduceKind::max) {
    operands.insert(operands.end(), results.begin(), results.end());
    operands.insert(operands.end(), counts.begin(), counts.end());
  }

  // What reaches each prologue value v_k, then on through the prologue.
  ExpressionBuilder e;
  const std::vector<Value> v = prologue(e, expression);
  std::vector<Value> arguments;
  for (int i = 0; i < n; ++i) arguments.push_back(e.input(i));
  arguments.insert(arguments.end(), v.begin(), v.end());
  for (int k = 0; k < m; ++k) {
    Value dv = e.input(n + k);
    if (a.kind == ReduceKind::max) {
      const Value share = e.div(dv, e.input(n + 2 * m + k));
      dv = e.select(e.apply(Prim::equal, v[size_t(k)], e.input(n + m + k)), share, e.constant(0));
    }
    arguments.push_back(dv);
  }
  const std::vector<Value> outputs = e.inline_expression(differentiate(expression, wanted), arguments);
  const Expression derivative = e.finish(outputs, int(operands.size()));
  emit_operand_gradients(context, derivative, wanted, operands, full, random_state);
}

}  // namespace

std::string ReduceAttributes::text() const {
  std::string kept;
  for (const auto& [keep, letter] : {std::pair{n, 'n'}, {h, 'h'}, {w, 'w'}, {c, 'c'}})
    if (keep) kept += letter;
  return fmt::format("{} keep {}{}: {}{}", kind == ReduceKind::sum ? "sum" : "max", kept.empty() ? "-" : kept,
                     stored.empty() ? "" : fmt::format(" store {}", stored.size()), view_text(),
                     expression.text());
}

const OpDefinition& reduce_definition() {
  static const OpDefinition definition{"reduce", infer, reference, gradient};
  return definition;
}

}  // namespace ren
