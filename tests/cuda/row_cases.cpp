// SPDX-License-Identifier: Apache-2.0
// Cases of what works on rows and groups: layer and group norm, softmax; and of operands that are there for
// their shape alone.
#include "cuda/cases.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/softmax/softmax.h"

namespace ren::test {
namespace {

// Small and odd; all widths of lanes; rows that a block shares; few rows that several blocks share.
const Shape kRows[] = {{2, 3, 5, 7},    {5, 1, 1, 10},     {2, 4, 4, 96},    {3, 1, 2, 1},
                       {1, 9, 9, 200},  {3, 5, 5, 3},      {4, 14, 14, 768}, {7, 1, 1, 1000},
                       {2, 1, 1, 5000}, {1, 3, 1, 150001}, {700, 1, 1, 4104}};

void add_layer_norm_cases(std::vector<CudaCase>& cases, DType type) {
  for (const Shape& s : kRows)
    cases.push_back({fmt::format("layer_norm_statistics {} {}", name_of(type), to_string(s)),
                     [s, type](Case& c) {
                       auto a = std::make_shared<LayerNormAttributes>();
                       a->epsilon = 1e-3f;  // rows of one value have no variance
                       // A mean of three standard deviations: cancellation would show.
                       const TensorId x = c.input("x", s, type, random_values(s.elements(), 1, 1, 3));
                       c.add(Op::layer_norm_statistics, {x}, a);
                     },
                     s.c, DType::f32});
}

void add_group_norm_cases(std::vector<CudaCase>& cases, DType type) {
  struct Groups {
    Shape x;
    int64_t groups;
  };
  const Groups all[] = {{{2, 3, 5, 7}, 1},    {{2, 3, 5, 7}, 7},     {{3, 7, 7, 24}, 4},
                        {{3, 7, 7, 24}, 24},  {{2, 9, 9, 300}, 3},   {{4, 28, 28, 64}, 32},
                        {{1, 1, 1, 8}, 2},    {{16, 56, 56, 16}, 2}, {{2, 60, 60, 16}, 1},
                        {{130, 4, 4, 32}, 8}, {{1, 200, 150, 6}, 6}};
  for (const Groups& g : all)
    cases.push_back(
        {fmt::format("group_norm_statistics {} {} {} groups", name_of(type), to_string(g.x), g.groups),
         [g, type](Case& c) {
           auto a = std::make_shared<GroupNormAttributes>();
           a->groups = g.groups;
           a->epsilon = 1e-3f;
           const TensorId x = c.input("x", g.x, type, random_values(g.x.elements(), 1, 1, 3));
           c.add(Op::group_norm_statistics, {x}, a);
           c.add(Op::group_sum, {c.input("v", {g.x.n, 1, 1, g.x.c}, type, 2)}, a);
         },
         g.x.h * g.x.w * g.x.c / g.groups, DType::f32});
}

void add_softmax_cases(std::vector<CudaCase>& cases, DType type) {
  for (const Shape& s : kRows)
    for (const bool log : {false, true})
      cases.push_back({fmt::format("softmax {} {}{}", name_of(type), to_string(s), log ? " log" : ""),
                       [s, log, type](Case& c) {
                         const auto a = std::make_shared<SoftmaxAttributes>(log);
                         const TensorId x = c.input("x", s, type, random_values(s.elements(), 1, -6, 6));
                         const TensorId y = c.add(Op::softmax, {x}, a)[0];
                         // Backward has a y of its own: the rounding of the first kernel's isn't in it.
                         const TensorId given = c.input("y", s, type, c.run_reference().at(y));
                         c.add(Op::softmax_backward, {c.input("dy", s, type, 2), given}, a);
                       },
                       // dx = dy - exp(y) * sum(dy): as large as a sum of C terms.
                       s.c, type});
}

void add_unread_cases(std::vector<CudaCase>& cases, DType type) {
  const Shape full{3, 5, 4, 24}, odd{2, 3, 5, 7};
  for (const Shape& s : {full, odd})
    for (const Shape& read : {Shape{s.n, 1, 1, 1}, Shape{1, 1, 1, s.c}, Shape{}})
      cases.push_back(
          {fmt::format("unread {} {} beside {}", name_of(type), to_string(s), to_string(read)),
           [s, read, type](Case& c) {
             const TensorId x = c.input("x", read, DType::f32, 1), shape = c.input("s", s, type, 2);
             ExpressionBuilder e;
             c.add(Op::pointwise, {x, shape},
                   std::make_shared<PointwiseAttributes>(
                       e.finish({e.mul(e.input(0), e.constant(3)), e.constant(0.5)}, 2),
                       std::vector<DType>{type, DType::f32}));
             ExpressionBuilder r;
             c.add(Op::reduce, {x, shape},
                   std::make_shared<ReduceAttributes>(r.finish({r.input(0), r.constant(0.5)}, 2),
                                                      ReduceKind::sum, false, false, false, true));
           },
           s.pixels(), type});
}

}  // namespace

void add_row_cases(std::vector<CudaCase>& cases, DType type) {
  add_layer_norm_cases(cases, type);
  add_group_norm_cases(cases, type);
  add_softmax_cases(cases, type);
  add_unread_cases(cases, type);
}

}  // namespace ren::test
