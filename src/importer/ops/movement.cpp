// SPDX-License-Identifier: Apache-2.0
// Concat, Slice, Split, Pad, Gather.
#include <algorithm>

#include "engine/ops/concat/concat.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/slice/slice.h"
#include "importer/operators.h"

namespace ren::importer {

namespace {

Axis engine_axis(const Assignment& assignment, int axis) {
  const int d = assignment[size_t(axis)];
  if (d == 0) refuse("keep samples apart", "works along the batch axis");
  return d == 1 ? Axis::h : d == 2 ? Axis::w : Axis::c;
}

OnnxValue slice(ImportContext& context, const OnnxValue& x, int axis, int64_t begin, int64_t count,
                int64_t step) {
  if (begin == 0 && step == 1 && count == x.map.extent(axis)) return x;
  if (x.map.has_batch(axis)) refuse("keep samples apart", "takes a part of the batch");
  if (count < 1) contradict("takes {} elements of axis {} with {}", count, axis, x.map.extent(axis));
  const Assignment assignment = context.natural_assignment(x);
  const OnnxValue image = context.arrange(x, assignment);
  const auto attributes =
      std::make_shared<SliceAttributes>(engine_axis(assignment, axis), begin, count, step);
  return context.image(context.node(Op::slice, {image.id}, attributes)[0], assignment);
}

}  // namespace

void import_concat(const NodeView& node) {
  ImportContext& context = node.context;
  if (node.inputs() < 1) contradict("has no inputs");
  if (node.inputs() == 1) return node.give(0, node.required(0));
  const OnnxValue& first = node.tensor_in(0);
  if (!node.has_attribute("axis")) contradict("attribute 'axis' is missing");
  const int axis = node.axis(node.integer("axis", 0), first.rank());
  const Assignment assignment = context.natural_assignment(first);
  std::vector<TensorId> inputs;
  for (int i = 0; i < node.inputs(); ++i) {
    const OnnxValue& x = node.tensor_in(i);
    Dims a = first.dims(), b = x.dims();
    if (a.size() == b.size()) a[size_t(axis)] = b[size_t(axis)] = 0;
    if (a != b)
      contradict("joins shapes {} and {} along axis {}", to_text(first.dims()), to_text(x.dims()), axis);
    inputs.push_back(context.arrange(x, assignment).id);
  }
  const auto attributes = std::make_shared<ConcatAttributes>(engine_axis(assignment, axis));
  node.give(0, context.image(context.node(Op::concat, inputs, attributes)[0], assignment));
}

void import_slice(const NodeView& node) {
  OnnxValue x = node.tensor_in(0);
  std::vector<int64_t> starts, ends, axes, steps;
  if (node.opset < 10) {
    starts = node.integers("starts");
    ends = node.integers("ends");
    axes = node.integers("axes");
  } else {
    starts = node.ints_in(1);
    // An end may be the batch size, if it stands for "all of it".
    const HostValue raw_ends = node.host_in(2);
    for (size_t i = 0; i < raw_ends.ints.size(); ++i) ends.push_back(raw_ends.ints[i]);
    if (node.has(3)) axes = node.ints_in(3);
    if (node.has(4)) steps = node.ints_in(4);
  }
  if (axes.empty())
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(int64_t(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    contradict("starts, ends, axes and steps have different lengths");
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = node.axis(axes[i], x.rank());
    const int64_t extent = x.map.extent(axis);
    if (steps[i] == 0) contradict("a step is 0");
    if (steps[i] < 0) refuse("", "step {}: activations are not reversed", steps[i]);
    const auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + extent : v, 0, extent); };
    const int64_t begin = clamp(starts[i]), end = clamp(ends[i]);
    const int64_t count = end > begin ? (end - begin + steps[i] - 1) / steps[i] : 0;
    x = slice(node.context, x, axis, begin, count, steps[i]);
  }
  node.give(0, x);
}

namespace {

std::vector<OnnxValue> pieces(const NodeView& node, const std::vector<int64_t>& sizes, int axis) {
  const OnnxValue& x = node.tensor_in(0);
  int64_t total = 0;
  for (const int64_t s : sizes) {
    if (s < 1) contradict("a piece has {} elements", s);
    total += s;
  }
  if (total != x.map.extent(axis))
    contradict("pieces {} of an axis with {} elements", to_text(sizes), x.map.extent(axis));
  std::vector<OnnxValue> result;
  int64_t begin = 0;
  for (const int64_t s : sizes) {
    result.push_back(slice(node.context, x, axis, begin, s, 1));
    begin += s;
  }
  return result;
}

// Pieces of one size, the last one perhaps smaller.
std::vector<int64_t> equal_pieces(int64_t extent, int64_t size) {
  if (size < 1) contradict("pieces of {} elements", size);
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < extent; begin += size) sizes.push_back(std::min(size, extent - begin));
  return sizes;
}

}  // namespace

void import_split(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  const int axis = node.axis(node.integer("axis", 0), x.rank());
  std::vector<int64_t> sizes = node.integers("split");
  if (node.has(1)) sizes = node.ints_in(1);
  if (sizes.empty()) {
    const int64_t count = node.integer("num_outputs", node.outputs());
    if (count < 1) contradict("num_outputs is {}", count);
    sizes = equal_pieces(x.map.extent(axis), (x.map.extent(axis) + count - 1) / count);
  }
  if (int(sizes.size()) != node.outputs())
    contradict("{} pieces for {} outputs", sizes.size(), node.outputs());
  const auto all = pieces(node, sizes, axis);
  for (int i = 0; i < node.outputs(); ++i) node.give(i, all[size_t(i)]);
}

void import_split_to_sequence(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  const int axis = node.axis(node.integer("axis", 0), x.rank());
  if (!node.has(1)) refuse("", "splits into single elements");
  const HostValue wanted = node.host_in(1);
  const std::vector<int64_t> given = node.ints_in(1);
  const std::vector<int64_t> sizes =
      wanted.dims.empty() ? equal_pieces(x.map.extent(axis), given.at(0)) : given;
  OnnxValue sequence;
  sequence.kind = Kind::sequence;
  sequence.items = pieces(node, sizes, axis);
  node.give(0, std::move(sequence));
}

void import_sequence_at(const NodeView& node) {
  const OnnxValue& sequence = node.in(0);
  if (!sequence.is(Kind::sequence)) contradict("input 0 is no sequence");
  const std::vector<int64_t> position = node.ints_in(1);
  if (position.size() != 1) contradict("the position is no scalar");
  node.give(0, sequence.items[size_t(node.axis(position[0], int(sequence.items.size())))]);
}

void import_pad(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.tensor_in(0);
  const std::string mode = node.text("mode", "constant");
  std::vector<int64_t> pads = node.integers("pads");
  double value = node.real("value", 0);
  std::vector<int64_t> axes;
  if (node.opset >= 11) {
    pads = node.ints_in(1);
    if (node.has(2)) value = node.scalar_in(2);
    if (node.has(3)) axes = node.ints_in(3);
  }
  if (axes.empty())
    for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
  if (pads.size() != 2 * axes.size()) contradict("pads {} for {} axes", to_text(pads), axes.size());
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) return node.give(0, x);
  auto attributes = std::make_shared<PadAttributes>();
  const Assignment assignment = context.natural_assignment(x);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = pads[i], after = pads[axes.size() + i];
    if (before == 0 && after == 0) continue;
    if (std::abs(before) > (1 << 20) || std::abs(after) > (1 << 20))
      contradict("pads {} out of range", to_text(pads));
    switch (engine_axis(assignment, node.axis(axes[i], x.rank()))) {
      case Axis::h:
        attributes->top = before, attributes->bottom = after;
        break;
      case Axis::w:
        attributes->left = before, attributes->right = after;
        break;
      default:
        attributes->c_before = before, attributes->c_after = after;
        break;
    }
  }
  if (mode == "reflect") {
    attributes->mode = PadMode::reflect;
  } else if (mode == "edge") {
    attributes->mode = PadMode::edge;
  } else if (mode != "constant") {
    refuse("", "mode '{}'; constant, reflect and edge are supported", mode);
  }
  attributes->value = value;
  const OnnxValue image = context.arrange(x, assignment);
  node.give(0, context.image(context.node(Op::pad, {image.id}, attributes)[0], assignment));
}

namespace {

// Indices that visit every element of a flat tensor once, axis by axis with fixed strides, as
// exporters write a change of memory format: a reshape and a transpose in truth.
bool as_transpose(const HostValue& indices, AxisMap& map) {
  const int64_t total = indices.elements();
  if (total != product(map.atoms) || indices.is_real()) return false;
  const size_t rank = indices.dims.size();
  Dims strides(rank, 0), inner(rank, 1);
  for (size_t a = rank; a-- > 1;) inner[a - 1] = inner[a] * indices.dims[a];
  for (size_t a = 0; a < rank; ++a)
    if (indices.dims[a] > 1) strides[a] = indices.ints[size_t(inner[a])] - indices.ints[0];
  for (int64_t i = 0; i < total; ++i) {
    int64_t expected = 0;
    for (size_t a = 0; a < rank; ++a) expected += (i / inner[a]) % indices.dims[a] * strides[a];
    if (indices.ints[size_t(i)] != expected) return false;
  }
  std::vector<int> order(rank);
  for (size_t a = 0; a < rank; ++a) order[a] = int(a);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto key = [&](int axis) {
      return indices.dims[size_t(axis)] == 1 ? INT64_MAX : strides[size_t(axis)];
    };
    return key(a) > key(b);
  });
  Dims sorted;
  for (const int a : order) sorted.push_back(indices.dims[size_t(a)]);
  int64_t stride = 1;
  for (size_t k = rank; k-- > 0;) {
    if (sorted[k] != 1 && strides[size_t(order[k])] != stride) return false;
    stride *= sorted[k];
  }
  if (!map.reshape(sorted)) return false;
  std::vector<int> back(rank);
  for (size_t k = 0; k < rank; ++k) back[size_t(order[k])] = int(k);
  map.transpose(back);
  return true;
}

}  // namespace

void import_gather(const NodeView& node) {
  OnnxValue x = node.tensor_in(0);
  const int axis = node.axis(node.integer("axis", 0), x.rank());
  const HostValue indices = node.host_in(1);
  if (x.rank() == 1 && as_transpose(indices, x.map)) return node.give(0, x);
  if (indices.depends_on_batch()) refuse("", "the indices depend on the batch size");
  if (indices.elements() == 1) {
    const int64_t at = node.axis(indices.ints.at(0), int(x.map.extent(axis)));
    OnnxValue y = slice(node.context, x, axis, at, 1, 1);
    if (indices.dims.empty()) y.map.axes.erase(y.map.axes.begin() + axis);
    return node.give(0, y);
  }
  bool run = indices.dims.size() == 1 && indices.elements() > 1;
  const int64_t step = run ? indices.ints[1] - indices.ints[0] : 1;
  for (size_t i = 1; run && i < indices.ints.size(); ++i) run = indices.ints[i] - indices.ints[i - 1] == step;
  if (!run || step < 1 || indices.ints[0] < 0 || indices.ints.back() >= x.map.extent(axis))
    refuse("", "takes elements of an activation in arbitrary order; evenly spaced ones are supported");
  node.give(0, slice(node.context, x, axis, indices.ints[0], indices.elements(), step));
}

}  // namespace ren::importer
