// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "importer/operators.h"
#include "importer/window.h"

namespace ren::importer {

namespace {

OnnxValue pool(const NodeView& node, Op op, bool average) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.tensor_in(0);
  const int rank = x.rank();
  if (rank != 3 && rank != 4) refuse("", "the input has rank {}; 3 and 4 are supported", rank);
  const Dims kernel = node.integers("kernel_shape");
  if (int(kernel.size()) != rank - 2)
    contradict("kernel_shape {} for an input of rank {}", to_text(kernel), rank);
  const OnnxValue image = context.arrange(x, channels_first(rank));
  const Shape shape = context.builder.graph().at(image.id).shape;
  const Window window = read_window(node, kernel, shape, true);
  auto attributes = std::make_shared<PoolAttributes>();
  attributes->kernel_h = window.kernel_h;
  attributes->kernel_w = window.kernel_w;
  set_window(*attributes, window);
  attributes->ceil_mode = node.integer("ceil_mode", 0) != 0;
  if (average) attributes->count_include_pad = node.integer("count_include_pad", 0) != 0;
  const TensorId y = context.node(op, {image.id}, attributes)[0];
  return context.image(y, channels_first(rank));
}

// Sum, mean or maximum over some axes.
OnnxValue reduce(ImportContext& context, const OnnxValue& x, const std::set<int>& axes, bool keep,
                 ReduceKind kind, bool mean) {
  std::vector<bool> gone(x.map.atoms.size(), false);
  int64_t count = 1;
  for (const int axis : axes) {
    if (x.map.has_batch(axis)) refuse("reduce within one sample only", "reduces over the batch");
    for (const int atom : x.map.axes[size_t(axis)]) gone[size_t(atom)] = true;
    count *= x.map.extent(axis);
  }
  // Neighbours in memory that stay or go together make one dimension.
  std::vector<std::vector<int>> runs;
  Groups groups;
  for (int atom = 0; atom < int(gone.size()); ++atom) {
    if (atom == x.map.batch) {
      groups[0].push_back(atom);
    } else if (runs.empty() || gone[size_t(runs.back()[0])] != gone[size_t(atom)]) {
      runs.push_back({atom});
    } else {
      runs.back().push_back(atom);
    }
  }
  if (runs.size() > 3) refuse("", "reduces over axes that are spread over the memory");
  for (size_t r = 0; r < runs.size(); ++r) groups[4 - runs.size() + r] = runs[r];
  // H and W apart, where the tensor has them so already.
  const Shape shape = context.builder.graph().at(x.id).shape;
  if (runs.size() == 2 && groups[2].size() == 2 && x.map.atoms[size_t(groups[2][0])] == shape.h)
    groups[1] = {groups[2][0]}, groups[2] = {groups[2][1]};
  const OnnxValue input = context.arrange(x, groups);
  const auto stays = [&](int d) { return groups[size_t(d)].empty() || !gone[size_t(groups[size_t(d)][0])]; };
  ExpressionBuilder e;
  const ren::Value value = mean ? e.mul(e.input(0), e.constant(1.0 / double(count))) : e.input(0);
  TensorId y = input.id;
  if (count > 1) {
    auto attributes =
        std::make_shared<ReduceAttributes>(e.finish({value}, 1), kind, true, stays(1), stays(2), stays(3));
    y = context.node(Op::reduce, {input.id}, attributes)[0];
  }
  AxisMap map;
  std::vector<int> now(gone.size(), -1);
  for (size_t i = 0; i < gone.size(); ++i) {
    if (gone[i]) continue;
    now[i] = int(map.atoms.size());
    if (int(i) == x.map.batch) map.batch = now[i];
    map.atoms.push_back(x.map.atoms[i]);
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axes.count(axis) && !keep) continue;
    map.axes.emplace_back();
    if (axes.count(axis)) continue;
    for (const int atom : x.map.axes[size_t(axis)]) map.axes.back().push_back(now[size_t(atom)]);
  }
  return context.make_tensor(y, map);
}

}  // namespace

void import_max_pool(const NodeView& node) {
  if (node.wants(1)) refuse("", "the indices output is used");
  if (node.integer("storage_order", 0) != 0) refuse("", "storage_order=1 is not supported");
  node.give(0, pool(node, Op::max_pool, false));
}

void import_average_pool(const NodeView& node) { node.give(0, pool(node, Op::average_pool, true)); }

void import_global_pool(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  if (x.rank() < 3) contradict("the input has shape {}", to_text(x.dims()));
  std::set<int> axes;
  for (int a = 2; a < x.rank(); ++a) axes.insert(a);
  const bool max = node.proto.op_type() == "GlobalMaxPool";
  node.give(0, reduce(node.context, x, axes, true, max ? ReduceKind::max : ReduceKind::sum, !max));
}

void import_reduce(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  const std::string& op = node.proto.op_type();
  if (op == "ReduceMean" && import_decomposed_layer_norm(node)) return;
  std::vector<int64_t> listed = node.integers("axes");
  if (node.has(1)) listed = node.ints_in(1);
  const bool none = listed.empty();
  if (none && node.integer("noop_with_empty_axes", 0) != 0) return node.give(0, x);
  std::set<int> axes;
  if (none)
    for (int a = 0; a < x.rank(); ++a) axes.insert(a);
  for (const int64_t a : listed) axes.insert(node.axis(a, x.rank()));
  const ReduceKind kind = op == "ReduceMax" ? ReduceKind::max : ReduceKind::sum;
  node.give(0, reduce(node.context, x, axes, node.integer("keepdims", 1) != 0, kind, op == "ReduceMean"));
}

}  // namespace ren::importer
