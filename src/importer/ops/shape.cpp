// SPDX-License-Identifier: Apache-2.0
// Ops that only rename axes, and those that tell shapes.
#include <algorithm>
#include <numeric>

#include "importer/operators.h"

namespace ren::importer {

namespace {

// Changes the axes of a weight or a tensor; known content goes to the evaluator before.
void give_reshaped(const NodeView& node, OnnxValue x, const Dims& target) {
  if (x.map.reshape(target)) return node.give(0, x);
  if (!x.is(Kind::tensor))
    refuse("", "reshapes {} to {} across its axes", to_text(x.dims()), to_text(target));
  // The axes cut across the memory: a copy in the order of the axes can be cut anywhere.
  x = node.context.copy_to_axis_order(x);
  if (!x.map.reshape(target)) {
    // One long axis after the batch.
    AxisMap flat;
    flat.batch = 0;
    flat.atoms = {x.map.atoms[0], product(x.map.atoms) / x.map.atoms[0]};
    flat.axes = {{0}, {1}};
    x.map = flat;
    if (!x.map.reshape(target))
      refuse("export with a dynamic batch", "reshapes {} to {}, which mixes samples",
             to_text(node.in(0).dims()), to_text(target));
  }
  node.give(0, x);
}

}  // namespace

void import_reshape(const NodeView& node) {
  const OnnxValue& x = node.required(0);
  HostValue shape;
  if (node.has(1)) {
    shape = node.host_in(1);
  } else {
    shape = HostValue::integers(node.integers("shape"));
  }
  const Dims dims = x.dims();
  Dims target = shape.ints;
  const bool copy_zero = node.integer("allowzero", 0) == 0;
  int64_t known = 1;
  int guessed = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && copy_zero) {
      if (i >= dims.size()) contradict("shape {} copies axis {} of {}", to_text(target), i, to_text(dims));
      target[i] = dims[i];
    }
    if (target[i] == -1) {
      if (guessed >= 0) contradict("shape {} leaves two axes open", to_text(shape.ints));
      guessed = int(i);
    } else if (target[i] < 1 || target[i] > (int64_t{1} << 40) / known) {
      contradict("shape {} for {}", to_text(shape.ints), to_text(dims));
    } else {
      known *= target[i];
    }
  }
  const int64_t total = product(dims);
  if (guessed >= 0) target[size_t(guessed)] = total / known;
  if (product(target) != total) {
    const bool baked = node.context.model.dynamic_batch && x.is(Kind::tensor);
    if (baked)
      refuse("export without constant folding, or use flatten(1) in place of a fixed view",
             "shape {} fixes the batch size, though the model's batch is dynamic", to_text(shape.ints));
    contradict("cannot reshape {} to {}", to_text(dims), to_text(shape.ints));
  }
  give_reshaped(node, x, target);
}

void import_flatten(const NodeView& node) {
  const OnnxValue& x = node.required(0);
  int64_t axis = node.integer("axis", 1);
  if (axis < -x.rank() || axis > x.rank()) contradict("axis {} of a tensor of rank {}", axis, x.rank());
  if (axis < 0) axis += x.rank();
  const Dims dims = x.dims();
  give_reshaped(
      node, x,
      {product(std::span(dims).first(size_t(axis))), product(std::span(dims).subspan(size_t(axis)))});
}

void import_squeeze(const NodeView& node) {
  OnnxValue x = node.required(0);
  std::vector<int64_t> listed = node.integers("axes");
  if (node.has(1)) listed = node.ints_in(1);
  std::vector<bool> gone(size_t(x.rank()), false);
  for (const int64_t a : listed) {
    const int axis = node.axis(a, x.rank());
    if (x.map.extent(axis) != 1) contradict("squeezes axis {} of {}", a, to_text(x.dims()));
    if (x.map.has_batch(axis)) refuse("name the axes to squeeze", "squeezes the batch axis away");
    gone[size_t(axis)] = true;
  }
  if (listed.empty())
    for (int a = 0; a < x.rank(); ++a) gone[size_t(a)] = x.map.extent(a) == 1 && !x.map.has_batch(a);
  std::vector<std::vector<int>> kept;
  for (int a = 0; a < x.rank(); ++a)
    if (!gone[size_t(a)]) kept.push_back(x.map.axes[size_t(a)]);
  x.map.axes = std::move(kept);
  node.give(0, x);
}

void import_unsqueeze(const NodeView& node) {
  OnnxValue x = node.required(0);
  std::vector<int64_t> listed = node.integers("axes");
  if (node.has(1)) listed = node.ints_in(1);
  const int rank = x.rank() + int(listed.size());
  if (rank > 16) contradict("gives a tensor of rank {}", rank);
  std::vector<bool> fresh(size_t(rank), false);
  for (const int64_t a : listed) {
    const int axis = node.axis(a, rank);
    if (fresh[size_t(axis)]) contradict("axis {} is given twice", a);
    fresh[size_t(axis)] = true;
  }
  std::vector<std::vector<int>> axes;
  size_t next = 0;
  for (int a = 0; a < rank; ++a) axes.push_back(fresh[size_t(a)] ? std::vector<int>{} : x.map.axes[next++]);
  x.map.axes = std::move(axes);
  node.give(0, x);
}

void import_transpose(const NodeView& node) {
  OnnxValue x = node.required(0);
  std::vector<int64_t> listed = node.integers("perm");
  if (!node.has_attribute("perm"))
    for (int a = x.rank(); a-- > 0;) listed.push_back(a);
  std::vector<int> order;
  std::set<int> seen;
  for (const int64_t a : listed) {
    order.push_back(node.axis(a, x.rank()));
    seen.insert(order.back());
  }
  if (int(order.size()) != x.rank() || seen.size() != order.size())
    contradict("perm {} for a tensor of rank {}", to_text(listed), x.rank());
  x.map.transpose(order);
  node.give(0, x);
}

void import_shape(const NodeView& node) {
  const OnnxValue& x = node.required(0);
  const Dims dims = x.dims();
  const int64_t rank = int64_t(dims.size());
  const auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const int64_t begin = clamp(node.integer("start", 0));
  const int64_t end = std::max(begin, clamp(node.integer("end", rank)));
  HostValue shape;
  if (node.proto.op_type() == "Size") {
    shape = HostValue::scalar(product(dims));
    shape.batch = {uint8_t(x.is(Kind::tensor) && x.map.batch >= 0)};
  } else {
    shape = HostValue::integers({dims.begin() + begin, dims.begin() + end});
    for (int64_t a = begin; a < end; ++a) shape.batch.push_back(x.map.has_batch(int(a)));
  }
  node.give(0, ImportContext::make_host(std::move(shape)));
}

// Of activations only when nothing changes; broadcasting them is left to what reads them.
void import_expand(const NodeView& node) {
  const OnnxValue& x = node.required(0);
  const HostValue shape = node.host_in(1);
  Dims dims = x.dims();
  const size_t shift = shape.ints.size() > dims.size() ? shape.ints.size() - dims.size() : 0;
  for (size_t i = 0; i < shape.ints.size(); ++i) {
    const int64_t wanted = shape.ints[shape.ints.size() - 1 - i];
    const int64_t own = i < dims.size() ? dims[dims.size() - 1 - i] : 1;
    if (wanted != 1 && wanted != own)
      refuse("rely on broadcasting instead of expand", "expands {} to {}", to_text(dims),
             to_text(shape.ints));
  }
  OnnxValue y = x;
  for (size_t i = 0; i < shift; ++i) y.map.axes.insert(y.map.axes.begin(), std::vector<int>{});
  node.give(0, y);
}

// The result of Identity on a tensor of the file is a copy of it, not a tie: exporters write it
// for tensors that merely have equal values.
void import_identity(const NodeView& node) {
  OnnxValue x = node.in(0);
  if (x.is(Kind::absent)) contradict("input 0 is missing");
  if (x.is(Kind::weight)) x.copy = node.proto.output(0);
  node.give(0, x);
}

void import_constant(const NodeView& node) {
  const auto& attribute = node.proto.attribute(0);
  const std::string& name = attribute.name();
  if (name == "value_int") {
    node.give(0, ImportContext::make_host(HostValue::scalar(attribute.i())));
  } else if (name == "value_ints") {
    node.give(
        0, ImportContext::make_host(HostValue::integers({attribute.ints().begin(), attribute.ints().end()})));
  } else if (name == "value") {
    const auto& tensor = attribute.t();
    if (!is_integer_type(tensor.data_type()))
      refuse("", "a constant of type {}", type_name(tensor.data_type()));
    HostValue value;
    value.element = tensor.data_type() == onnx::TensorProto::BOOL ? Element::boolean : Element::integer;
    value.dims = {tensor.dims().begin(), tensor.dims().end()};
    value.ints = decode_integers(tensor, node.context.file.folder);
    node.give(0, ImportContext::make_host(std::move(value)));
  } else {
    refuse("", "a constant given by attribute '{}'", name);
  }
}

void import_known_only(const NodeView&) {
  refuse("", "computes with an activation; it is supported for constants and shapes only");
}

}  // namespace ren::importer
