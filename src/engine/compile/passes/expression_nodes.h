// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {

// A bound on the operands of a fused expression: beyond it kernels spill and lifetimes grow for little.
constexpr size_t kMostOperands = 12;

// Pointwise nodes and reductions compute expressions, and pools to which compute_in_pools gave one.
inline bool takes_expression(const Node& node) {
  return node.op == Op::pointwise || node.op == Op::reduce ||
         (node.op == Op::max_pool && node.as<PoolAttributes>().computes());
}

// Those whose attributes may view operands.
inline bool takes_views(const Node& node) { return node.op == Op::pointwise || node.op == Op::reduce; }

inline const Expression& expression_of(const Node& node) {
  return node.as<ExpressionAttributes>().expression;
}

// The primitives that TargetSpec::heavy_prim_bytes is about.
bool is_heavy(Prim prim);

// The operands of the expression, without the random state behind them.
inline std::span<const TensorId> operands_of(const Node& node) {
  return std::span(node.inputs).first(size_t(expression_of(node).inputs));
}

// A sum over samples and pixels, one result a channel, that draws no random numbers.
inline bool is_sum_by_channels(const Node& node) {
  if (node.op != Op::reduce) return false;
  const auto& a = node.as<ReduceAttributes>();
  return a.kind == ReduceKind::sum && !a.n && !a.h && !a.w && a.c && !a.expression.uses_random();
}

// What both nodes' expressions read, each operand once; what `second` reads of `first` is computed instead.
std::vector<TensorId> joint_operands(const Node& first, const Node& second);

// Does the node read bytes that one of these tensors, named by who owns the storage, has?
bool reads_one_of(const Graph& graph, const Node& node, const std::vector<TensorId>& storages);

// Do both nodes read a 16-bit tensor of this shape, or does `b` read such a result of `a`? By more than the
// shape, which a statistic has, too, where there is one pixel of one sample: variants of all batch sizes must
// come out alike.
bool share_a_tensor(const Graph& graph, const Node& a, const Node& b, const Shape& full);

// By tensor: is there one for each sample, which the shape doesn't tell where the batch is one sample?
std::vector<bool> values_per_sample(const Graph& graph);

// Who reads a tensor, and as which input.
struct Use {
  Node* node;
  size_t input;
};
std::vector<Use> uses_of(Graph& graph, TensorId id);

// Does anything but the inputs of nodes see this tensor: an output of the graph, a view, who keeps it?
bool is_seen_otherwise(const Graph& graph, TensorId id);

// The full shape of a node that computes an expression, its views taken into account.
Shape full_shape_of(const Graph& graph, const Node& node);

// Of a node that computes an expression, to be changed: nodes share theirs.
std::shared_ptr<ExpressionAttributes> copy_attributes(const Node& node);

// Lets the node read that operand so; takes_views() holds for it.
void set_view(const Use& use, const OperandView& view);

// Two nodes' expressions over their joint operands.
struct JointExpression {
  std::vector<TensorId> operands;
  ExpressionBuilder builder;
  std::vector<Value> first, second;  // the results of each

  Expression finish(const std::vector<Value>& results) {
    return builder.finish(results, int(operands.size()));
  }
};
JointExpression join_expressions(const Node& first, const Node& second);

}  // namespace ren
