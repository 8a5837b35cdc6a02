// SPDX-License-Identifier: Apache-2.0
// Cases of what only moves elements: concat, slice, pad, permute.
#include "cuda/cases.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/permute/permute.h"
#include "engine/ops/slice/slice.h"

namespace ren::test {
namespace {

void add_concat_cases(std::vector<CudaCase>& cases, DType type) {
  struct Join {
    Shape x;  // but for its extent along the axis
    Axis axis;
    std::vector<int64_t> extents;
  };
  std::vector<int64_t> many(70);  // more than one launch takes of long ones
  for (size_t i = 0; i < many.size(); ++i) many[i] = 1 + int64_t(i) % 5;
  const Join joins[] = {{{2, 5, 7, 0}, Axis::c, {16, 24, 8}}, {{2, 5, 7, 0}, Axis::c, {3, 16, 5}},
                        {{3, 0, 4, 6}, Axis::h, {2, 5}},      {{2, 3, 0, 7}, Axis::w, {4, 1, 6}},
                        {{2, 3, 3, 0}, Axis::c, many},        {{5, 4, 4, 0}, Axis::c, {8}},
                        {{40, 56, 56, 0}, Axis::c, {64, 32}}, {{3, 0, 9, 31}, Axis::h, many},
                        {{2, 0, 64, 64}, Axis::h, {9, 1, 12}}};
  for (const Join& j : joins)
    cases.push_back({fmt::format("concat {} {} along {} of {}", name_of(type), to_string(j.x),
                                 name_of(j.axis), j.extents.size()),
                     [j, type](Case& c) {
                       std::vector<TensorId> parts;
                       for (size_t i = 0; i < j.extents.size(); ++i) {
                         Shape s = j.x;
                         set_extent(s, j.axis, j.extents[i]);
                         parts.push_back(c.input(fmt::format("x{}", i), s, type, i + 1));
                       }
                       c.add(Op::concat, parts, std::make_shared<ConcatAttributes>(j.axis));
                     },
                     1, type});
}

void add_slice_cases(std::vector<CudaCase>& cases, DType type) {
  struct Cut {
    Shape x;
    Axis axis;
    int64_t begin, count, step;
  };
  const Cut cuts[] = {{{2, 5, 7, 48}, Axis::c, 16, 24, 1},   {{2, 5, 7, 13}, Axis::c, 3, 7, 1},
                      {{2, 9, 7, 8}, Axis::h, 1, 4, 2},      {{2, 5, 11, 6}, Axis::w, 2, 3, 3},
                      {{3, 4, 4, 17}, Axis::c, 1, 5, 3},     {{2, 6, 5, 5}, Axis::h, 2, 3, 1},
                      {{40, 56, 56, 58}, Axis::c, 0, 58, 1}, {{40, 56, 56, 64}, Axis::c, 32, 32, 1}};
  for (const Cut& k : cuts)
    cases.push_back({fmt::format("slice {} {} along {} from {} step {}", name_of(type), to_string(k.x),
                                 name_of(k.axis), k.begin, k.step),
                     [k, type](Case& c) {
                       const auto a = std::make_shared<SliceAttributes>(k.axis, k.begin, k.count, k.step);
                       const TensorId x = c.input("x", k.x, type, 1);
                       const TensorId y = c.add(Op::slice, {x}, a)[0];
                       const TensorId dy = c.input("dy", c.graph.at(y).shape, type, 2);
                       c.add(Op::slice_backward, {dy, x}, a);
                     },
                     1, type});
}

PadAttributes padding(PadMode mode, std::array<int64_t, 4> hw, int64_t before = 0, int64_t after = 0) {
  PadAttributes a;
  a.mode = mode;
  a.top = hw[0], a.left = hw[1], a.bottom = hw[2], a.right = hw[3];
  a.c_before = before, a.c_after = after;
  a.value = mode == PadMode::constant ? 0.25 : 0;
  return a;
}

void add_pad_cases(std::vector<CudaCase>& cases, DType type) {
  const std::pair<Shape, PadAttributes> paddings[] = {
      {{2, 4, 5, 3}, padding(PadMode::constant, {1, 2, 3, 4})},
      {{2, 6, 7, 16}, padding(PadMode::constant, {1, 1, 1, 1})},
      {{2, 4, 5, 16}, padding(PadMode::constant, {0, 0, 0, 0}, 8, 16)},
      {{2, 4, 5, 3}, padding(PadMode::constant, {0, 1, 0, 0}, 2, 3)},
      {{2, 6, 7, 8}, padding(PadMode::constant, {-1, 2, 1, -3}, -2, 1)},
      {{2, 6, 7, 8}, padding(PadMode::reflect, {3, 2, 5, 6})},
      {{2, 4, 5, 6}, padding(PadMode::reflect, {1, 0, 0, 2}, 5, 3)},
      {{2, 4, 5, 24}, padding(PadMode::edge, {1, 2, 0, 3})},
      {{2, 1, 5, 3}, padding(PadMode::edge, {2, 0, 1, 1}, 1, 2)},
      {{40, 56, 56, 32}, padding(PadMode::constant, {0, 0, 1, 1})}};
  for (const auto& [shape, a] : paddings)
    cases.push_back({fmt::format("pad {} {} {}", name_of(type), to_string(shape), a.text()),
                     [shape = shape, a = a, type](Case& c) {
                       const auto shared = std::make_shared<PadAttributes>(a);
                       const TensorId x = c.input("x", shape, type, 1);
                       const TensorId y = c.add(Op::pad, {x}, shared)[0];
                       const TensorId dy = c.input("dy", c.graph.at(y).shape, type, 2);
                       c.add(Op::pad_backward, {dy, x}, shared);
                     },
                     27, type});
}

void add_permute_cases(std::vector<CudaCase>& cases, DType type) {
  struct Order {
    int64_t samples;
    std::vector<int64_t> split;
    std::vector<int> order;
    const char* what;
  };
  const Order orders[] = {{3, {3, 4, 2, 5}, {0, 1, 3, 2}, "shuffle of 2 groups"},
                          {40, {28, 28, 2, 58}, {0, 1, 3, 2}, "shuffle of many"},
                          {3, {4, 4, 8, 8}, {0, 1, 3, 2}, "shuffle of 8 groups"},
                          {3, {3, 4, 10}, {2, 0, 1}, "HWC to CHW"},
                          {3, {3, 4, 10}, {0, 1, 2}, "nothing"},
                          {3, {3, 4, 16}, {1, 0, 2}, "H and W swapped"},
                          {3, {3, 4, 5}, {1, 0, 2}, "H and W swapped, odd"},
                          {2, {40, 30, 33}, {1, 0, 2}, "H and W swapped, large"},
                          {2, {3, 2, 2, 5, 2}, {4, 1, 0, 3, 2}, "five axes"},
                          {1, {120}, {0}, "one axis"},
                          {1, {5, 7}, {1, 0}, "a matrix"},
                          {2, {150, 150, 3}, {2, 0, 1}, "HWC to CHW, large"},
                          {2, {3, 150, 150}, {1, 2, 0}, "CHW to HWC, large"},
                          {2, {100, 72, 40}, {2, 1, 0}, "HWC to CWH"},
                          {3, {199, 200}, {1, 0}, "transposed"},
                          {2, {8, 8, 4, 4, 24}, {0, 2, 1, 3, 4}, "windows"},
                          {2, {60, 60, 12, 2, 2}, {0, 3, 1, 4, 2}, "pixel shuffle"}};
  for (const Order& o : orders)
    cases.push_back({fmt::format("permute {} {}", name_of(type), o.what),
                     [o, type](Case& c) {
                       auto a = std::make_shared<PermuteAttributes>();
                       a->split = o.split, a->order = o.order;
                       int64_t elements = 1;
                       for (const int64_t factor : o.split) elements *= factor;
                       a->h = elements;
                       c.add(Op::permute, {c.input("x", {o.samples, elements, 1, 1}, type, 1)}, a);
                     },
                     1, type});
}

}  // namespace

void add_copy_cases(std::vector<CudaCase>& cases, DType type) {
  add_concat_cases(cases, type);
  add_slice_cases(cases, type);
  add_pad_cases(cases, type);
  add_permute_cases(cases, type);
}

}  // namespace ren::test
