// SPDX-License-Identifier: Apache-2.0
// Moves values between layouts: nothing, a view, or a copy.
#include <algorithm>

#include "engine/ops/permute/permute.h"
#include "engine/ops/view/view.h"
#include "importer/import_context.h"

namespace ren::importer {

namespace {

std::vector<int> joined(const Groups& groups) {
  std::vector<int> sequence;
  for (const auto& group : groups) sequence.insert(sequence.end(), group.begin(), group.end());
  return sequence;
}

bool ascending(const std::vector<int>& sequence) {
  for (size_t i = 0; i < sequence.size(); ++i)
    if (sequence[i] != int(i)) return false;
  return true;
}

// The same axes over memory in another order.
AxisMap reordered(const AxisMap& map, const std::vector<int>& sequence) {
  AxisMap result = map;
  std::vector<int> now(map.atoms.size());
  for (size_t i = 0; i < sequence.size(); ++i) {
    now[size_t(sequence[i])] = int(i);
    result.atoms[i] = map.atoms[size_t(sequence[i])];
  }
  if (map.batch >= 0) result.batch = now[size_t(map.batch)];
  for (auto& axis : result.axes)
    for (int& atom : axis) atom = now[size_t(atom)];
  return result;
}

}  // namespace

std::vector<int> ordered_like(const AxisMap& x, int x_axis, AxisMap& map, int axis) {
  const auto& atoms = x.axes[size_t(x_axis)];
  Dims extents;
  for (const int atom : atoms) extents.push_back(x.atoms[size_t(atom)]);
  if (!map.refine(axis, extents))
    refuse("", "an axis of extent {} cannot be matched with one of extent {}", map.extent(axis),
           x.extent(x_axis));
  std::vector<size_t> order(atoms.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return atoms[a] < atoms[b]; });
  std::vector<int> result;
  for (const size_t i : order) result.push_back(map.axes[size_t(axis)][i]);
  return result;
}

OnnxValue ImportContext::make_tensor(TensorId id, AxisMap map, bool boolean) const {
  OnnxValue value;
  value.kind = Kind::tensor;
  value.id = id;
  value.map = std::move(map);
  value.boolean = boolean;
  return value;
}

OnnxValue ImportContext::image(TensorId id, const Assignment& assignment) const {
  return make_tensor(id, AxisMap::of(model.graph.at(id).shape, assignment));
}

TensorId ImportContext::view(TensorId id, const Shape& shape) {
  if (builder.graph().at(id).shape == shape) return id;
  const std::string key = fmt::format("view {} {}", id, to_string(shape));
  const auto found = layouts_.find(key);
  if (found != layouts_.end()) return found->second;
  const TensorId result =
      node(Op::view, {id}, std::make_shared<ViewAttributes>(shape.h, shape.w, shape.c))[0];
  layouts_[key] = result;
  return result;
}

TensorId ImportContext::permute(TensorId id, const AxisMap& map, const std::vector<int>& sequence,
                                const Shape& shape) {
  if (map.batch != 0 || sequence.empty() || sequence[0] != 0)
    refuse("keep the batch as the first axis", "the batch axis would have to move");
  auto attributes = std::make_shared<PermuteAttributes>();
  attributes->split.assign(map.atoms.begin() + 1, map.atoms.end());
  for (size_t i = 1; i < sequence.size(); ++i) attributes->order.push_back(sequence[i] - 1);
  const int64_t n = map.atoms[0], each = shape.elements() / n;
  const bool direct = shape.n == n;
  attributes->h = direct ? shape.h : 1;
  attributes->w = direct ? shape.w : 1;
  attributes->c = direct ? shape.c : each;
  const TensorId input = builder.graph().at(id).shape.n == n ? id : view(id, {n, 1, 1, each});
  const std::string key = fmt::format("permute {} {}", input, attributes->text());
  const auto found = layouts_.find(key);
  if (found != layouts_.end()) return view(found->second, shape);
  const TensorId result = node(Op::permute, {input}, attributes)[0];
  layouts_[key] = result;
  return view(result, shape);
}

OnnxValue ImportContext::arrange(const OnnxValue& value, const Groups& groups) {
  const std::vector<int> sequence = joined(groups);
  require(sequence.size() == value.map.atoms.size(), "a layout must name every atom");
  const Shape shape{value.map.extent_of(groups[0]), value.map.extent_of(groups[1]),
                    value.map.extent_of(groups[2]), value.map.extent_of(groups[3])};
  if (ascending(sequence)) return make_tensor(view(value.id, shape), value.map, value.boolean);
  return make_tensor(permute(value.id, value.map, sequence, shape), reordered(value.map, sequence),
                     value.boolean);
}

Groups ImportContext::groups_of(const AxisMap& map, const Assignment& assignment) const {
  Groups groups;
  for (size_t axis = 0; axis < assignment.size(); ++axis) {
    auto& group = groups[size_t(assignment[axis])];
    group.insert(group.end(), map.axes[axis].begin(), map.axes[axis].end());
  }
  return groups;
}

OnnxValue ImportContext::arrange(const OnnxValue& value, const Assignment& assignment) {
  if (value.rank() != int(assignment.size()))
    refuse("", "a tensor of rank {} where rank {} is needed", value.rank(), assignment.size());
  if (!value.map.has_batch(0)) refuse("keep the batch as the first axis", "the first axis isn't the batch");
  return arrange(value, groups_of(value.map, assignment));
}

bool ImportContext::is_view(const AxisMap& map, const Assignment& assignment) const {
  return ascending(joined(groups_of(map, assignment)));
}

Assignment ImportContext::natural_assignment(const OnnxValue& value) const {
  const int rank = value.rank();
  if (rank < 2 || rank > 4) refuse("", "a tensor of rank {}; 2 to 4 are supported here", rank);
  const Assignment first = channels_first(rank), last = channels_last(rank);
  return !is_view(value.map, first) && is_view(value.map, last) ? last : first;
}

Groups ImportContext::with_tail(const OnnxValue& value, std::vector<int> tail) const {
  std::sort(tail.begin(), tail.end());
  Groups groups;
  groups[3] = tail;
  // H stays apart from W where the tensor has them apart already.
  const Shape& shape = model.graph.at(value.id).shape;
  int64_t inside = 1, h = 1;
  for (size_t i = 0; i < value.map.atoms.size(); ++i) {
    const int atom = int(i);
    if (atom == value.map.batch) {
      groups[0].push_back(atom);
      continue;
    }
    inside *= value.map.atoms[i];
    if (std::find(tail.begin(), tail.end(), atom) != tail.end()) continue;
    const bool in_h = inside <= shape.h && shape.h > 1 && groups[2].empty();
    if (in_h) h = inside;
    groups[in_h ? 1 : 2].push_back(atom);
  }
  if (h != shape.h && !groups[1].empty()) {
    groups[2].insert(groups[2].begin(), groups[1].begin(), groups[1].end());
    groups[1].clear();
  }
  return groups;
}

OnnxValue ImportContext::copy_to_axis_order(const OnnxValue& value) {
  Groups groups;
  for (const int atom : value.map.in_axis_order()) groups[atom == value.map.batch ? 0 : 3].push_back(atom);
  if (!value.map.has_batch(0) || value.map.axes[0].size() != 1)
    refuse("keep the batch as the first axis", "the batch axis is mixed with others");
  OnnxValue result = arrange(value, groups);
  AxisMap map;
  for (int axis = 0; axis < value.rank(); ++axis) {
    map.axes.emplace_back();
    const int64_t extent = value.map.extent(axis);
    if (axis == 0) map.batch = 0;
    if (extent == 1 && axis != 0) continue;
    map.axes.back().push_back(int(map.atoms.size()));
    map.atoms.push_back(extent);
  }
  result.map = std::move(map);
  return result;
}

}  // namespace ren::importer
