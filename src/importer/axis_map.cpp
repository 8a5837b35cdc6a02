// SPDX-License-Identifier: Apache-2.0
#include "importer/axis_map.h"

#include <algorithm>

#include "engine/base/status.h"

namespace ren::importer {

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

Assignment channels_first(int rank) {
  switch (rank) {
    case 1:
      return {3};
    case 2:
      return {0, 3};
    case 3:
      return {0, 3, 2};
    default:
      return {0, 3, 1, 2};
  }
}

Assignment channels_last(int rank) {
  switch (rank) {
    case 1:
      return {3};
    case 2:
      return {0, 3};
    case 3:
      return {0, 2, 3};
    default:
      return {0, 1, 2, 3};
  }
}

AxisMap AxisMap::plain(std::span<const int64_t> dims) {
  AxisMap map;
  for (const int64_t d : dims) {
    map.axes.emplace_back();
    if (d == 1) continue;
    map.axes.back().push_back(int(map.atoms.size()));
    map.atoms.push_back(d);
  }
  return map;
}

AxisMap AxisMap::of(const Shape& shape, const Assignment& assignment) {
  AxisMap map;
  const int64_t extents[4] = {shape.n, shape.h, shape.w, shape.c};
  int atom_of[4] = {0, -1, -1, -1};
  map.atoms.push_back(shape.n);
  map.batch = 0;
  for (int d = 1; d < 4; ++d) {
    if (extents[d] == 1) continue;
    atom_of[d] = int(map.atoms.size());
    map.atoms.push_back(extents[d]);
  }
  for (const int d : assignment) {
    map.axes.emplace_back();
    if (atom_of[d] >= 0) map.axes.back().push_back(atom_of[d]);
  }
  return map;
}

int64_t AxisMap::extent_of(std::span<const int> list) const {
  int64_t n = 1;
  for (const int atom : list) n *= atoms[size_t(atom)];
  return n;
}

int64_t AxisMap::extent(int axis) const { return extent_of(axes[size_t(axis)]); }

Dims AxisMap::dims() const {
  Dims result;
  for (int i = 0; i < rank(); ++i) result.push_back(extent(i));
  return result;
}

bool AxisMap::has_batch(int axis) const {
  const auto& list = axes[size_t(axis)];
  return batch >= 0 && std::find(list.begin(), list.end(), batch) != list.end();
}

int AxisMap::batch_axis() const {
  for (int i = 0; i < rank(); ++i)
    if (has_batch(i) && axes[size_t(i)].size() == 1) return i;
  return -1;
}

std::vector<int> AxisMap::in_axis_order() const {
  std::vector<int> all;
  for (const auto& list : axes) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void AxisMap::transpose(std::span<const int> order) {
  std::vector<std::vector<int>> moved;
  for (const int axis : order) moved.push_back(axes[size_t(axis)]);
  axes = std::move(moved);
}

void AxisMap::split(int atom, int64_t outer) {
  const int64_t inner = atoms[size_t(atom)] / outer;
  atoms[size_t(atom)] = outer;
  atoms.insert(atoms.begin() + atom + 1, inner);
  if (batch > atom) ++batch;
  for (auto& list : axes) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] > atom) {
        ++list[i];
      } else if (list[i] == atom) {
        list.insert(list.begin() + int64_t(i) + 1, atom + 1);
        ++i;
      }
    }
  }
}

bool AxisMap::reshape(const Dims& target) {
  if (product(atoms) == 0) return false;
  AxisMap next = *this;
  // One axis with all atoms, so that split() keeps the order right.
  next.axes = {in_axis_order()};
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int64_t wanted : target) {
    int64_t rest = wanted;
    // A batch of one sample belongs to the first axis that could hold it.
    const auto is_single_batch = [&] {
      return at < next.axes[0].size() && next.axes[0][at] == next.batch &&
             next.atoms[size_t(next.batch)] == 1;
    };
    if (is_single_batch()) ++at;
    while (rest > 1) {
      if (at >= next.axes[0].size()) return false;
      const int atom = next.axes[0][at];
      const int64_t size = next.atoms[size_t(atom)];
      if (rest % size == 0) {
        rest /= size;
        ++at;
      } else if (size % rest == 0 && atom != next.batch) {
        next.split(atom, rest);
        ++at;
        rest = 1;
      } else {
        return false;
      }
    }
    ends.push_back(at);
  }
  if (at != next.axes[0].size()) return false;
  const std::vector<int> all = next.axes[0];
  next.axes.clear();
  size_t begin = 0;
  for (const size_t end : ends) {
    next.axes.emplace_back(all.begin() + int64_t(begin), all.begin() + int64_t(end));
    begin = end;
  }
  *this = std::move(next);
  return true;
}

bool AxisMap::refine(int axis, std::span<const int64_t> extents) {
  AxisMap next = *this;
  size_t at = 0;
  for (const int64_t wanted : extents) {
    if (at >= next.axes[size_t(axis)].size()) return false;
    const int atom = next.axes[size_t(axis)][at];
    const int64_t size = next.atoms[size_t(atom)];
    if (size != wanted) {
      if (atom == next.batch || wanted < 1 || size % wanted != 0) return false;
      next.split(atom, wanted);
    }
    ++at;
  }
  if (at != next.axes[size_t(axis)].size()) return false;
  *this = std::move(next);
  return true;
}

bool AxisMap::align(AxisMap& a, int axis_a, AxisMap& b, int axis_b) {
  for (size_t i = 0;; ++i) {
    const auto& list_a = a.axes[size_t(axis_a)];
    const auto& list_b = b.axes[size_t(axis_b)];
    if (i >= list_a.size() || i >= list_b.size()) return list_a.size() == list_b.size();
    const int atom_a = list_a[i], atom_b = list_b[i];
    const bool batch_a = atom_a == a.batch, batch_b = atom_b == b.batch;
    if (batch_a != batch_b) return false;
    const int64_t size_a = a.atoms[size_t(atom_a)], size_b = b.atoms[size_t(atom_b)];
    if (size_a == size_b) continue;
    if (size_a == 0 || size_b == 0) return false;
    if (size_a % size_b == 0) {
      a.split(atom_a, size_b);
    } else if (size_b % size_a == 0) {
      b.split(atom_b, size_a);
    } else {
      return false;
    }
  }
}

}  // namespace ren::importer
