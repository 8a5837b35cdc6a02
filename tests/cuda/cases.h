// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/batch_mix.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/load_batch/load_batch.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "ops/harness.h"

namespace ren::test {

// What every CUDA kernel is tried on: built for the comparison with the references on a GPU, and
// for the compiler where there is none.
struct CudaCase {
  std::string name;
  std::function<void(Case&)> build;
  int64_t terms = 1;           // that a result sums up
  DType rounded = DType::f32;  // the narrowest type that a result passes through
};

inline std::shared_ptr<PoolAttributes> pool(int64_t kernel, int64_t stride, int64_t pad, bool ceil,
                                            bool include, int64_t dilation = 1) {
  auto a = std::make_shared<PoolAttributes>();
  a->kernel_h = a->kernel_w = kernel, a->stride_h = a->stride_w = stride;
  a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = pad;
  a->ceil_mode = ceil, a->count_include_pad = include, a->dilation_h = a->dilation_w = dilation;
  return a;
}

inline void add_pool_cases(std::vector<CudaCase>& cases, DType type) {
  struct Geometry {
    Shape x;
    int64_t kernel, stride, pad;
    bool ceil, include;
    int64_t dilation;
  };
  const Geometry geometries[] = {
      {{2, 8, 8, 16}, 2, 2, 0, false, false, 1},   {{2, 9, 7, 5}, 3, 2, 1, false, false, 1},
      {{1, 9, 9, 3}, 4, 4, 2, true, true, 1},      {{1, 2, 2, 4}, 3, 3, 1, true, false, 1},
      {{2, 11, 13, 6}, 3, 2, 1, false, true, 2},   {{2, 20, 20, 3}, 17, 3, 8, false, true, 1},
      {{2, 13, 10, 16}, 3, 2, 1, false, false, 1}, {{2, 9, 11, 16}, 3, 1, 1, false, true, 1},
      {{1, 14, 17, 8}, 5, 3, 2, false, false, 1},  {{1, 13, 13, 16}, 13, 1, 6, false, true, 1},
      {{1, 7, 8, 8}, 2, 3, 0, false, false, 1}};
  for (const Geometry& g : geometries) {
    const std::string at = fmt::format("{} {} k{} s{} p{} d{}", name_of(type), to_string(g.x), g.kernel,
                                       g.stride, g.pad, g.dilation);
    cases.push_back({"max_pool " + at,
                     [g, type](Case& c) {
                       const auto a = pool(g.kernel, g.stride, g.pad, g.ceil, g.include, g.dilation);
                       // Few distinct values, so that ties are frequent.
                       const TensorId x = c.input("x", g.x, type, random_integers(g.x.elements(), 1, 6));
                       const auto out = c.add(Op::max_pool, {x}, a);
                       const TensorId dy = c.input("dy", c.graph.at(out[0]).shape, type, 2);
                       c.add(Op::max_pool_backward, {dy, out[1], x}, a);
                     },
                     g.kernel * g.kernel, type});
    if (g.dilation != 1) continue;
    cases.push_back({"average_pool " + at,
                     [g, type](Case& c) {
                       const auto a = pool(g.kernel, g.stride, g.pad, g.ceil, g.include);
                       const TensorId x = c.input("x", g.x, type, 1);
                       const auto out = c.add(Op::average_pool, {x}, a);
                       const TensorId dy = c.input("dy", c.graph.at(out[0]).shape, type, 2);
                       c.add(Op::average_pool_backward, {dy, x}, a);
                     },
                     g.kernel * g.kernel, type});
  }
}

// relu(a * scale + b) and its tanh, over operands that broadcast.
inline Expression scaled_relu() {
  ExpressionBuilder e;
  const Value y = e.maximum(e.add(e.mul(e.input(0), e.input(1)), e.input(2)), e.constant(0));
  return e.finish({y, e.apply(Prim::tanh, y)}, 3);
}

inline void add_pointwise_cases(std::vector<CudaCase>& cases, DType type) {
  const Shape full{3, 5, 4, 24}, odd{2, 3, 5, 7};
  for (const Shape& s : {full, odd})
    for (const Shape& repeated : {s, Shape{1, 1, 1, s.c}, Shape{s.n, 1, 1, s.c}, Shape{s.n, s.h, s.w, 1},
                                  Shape{1, s.h, s.w, s.c}, Shape{}})
      cases.push_back({fmt::format("pointwise {} {} by {}", name_of(type), to_string(s), to_string(repeated)),
                       [s, repeated, type](Case& c) {
                         const TensorId a = c.input("a", s, type, 1),
                                        scale = c.input("scale", repeated, DType::f32, 2),
                                        b = c.input("b", Shape{1, 1, 1, s.c}, type, 3);
                         c.add(Op::pointwise, {a, scale, b},
                               std::make_shared<PointwiseAttributes>(scaled_relu(),
                                                                     std::vector<DType>{type, DType::f32}));
                       },
                       1, type});
  cases.push_back(
      {fmt::format("pointwise of all primitives {}", name_of(type)),
       [type](Case& c) {
         ExpressionBuilder e;
         const Value x = e.input(0), y = e.input(1), p = e.add(e.apply(Prim::abs, x), e.constant(0.5));
         std::vector<Value> out;
         for (const Prim prim :
              {Prim::neg, Prim::abs, Prim::exp, Prim::tanh, Prim::erf, Prim::sigmoid, Prim::softplus})
           out.push_back(e.apply(prim, x));
         for (const Prim prim : {Prim::log, Prim::sqrt, Prim::rsqrt, Prim::reciprocal})
           out.push_back(e.apply(prim, p));
         for (const Prim prim : {Prim::add, Prim::sub, Prim::mul, Prim::max, Prim::min, Prim::less,
                                 Prim::less_equal, Prim::equal})
           out.push_back(e.apply(prim, x, y));
         out.push_back(e.div(x, p));
         out.push_back(e.select(e.less(x, y), x, e.mul(y, e.constant(3))));
         const size_t count = out.size();
         const Shape s{2, 3, 4, 8};
         c.add(
             Op::pointwise, {c.input("x", s, type, 1), c.input("y", s, DType::f32, 2)},
             std::make_shared<PointwiseAttributes>(e.finish(out, 2), std::vector<DType>(count, DType::f32)));
       },
       4, DType::f32});
  cases.push_back({fmt::format("pointwise with random numbers {}", name_of(type)),
                   [type](Case& c) {
                     ExpressionBuilder e;
                     const Value kept = e.less(e.uniform(3, false), e.constant(0.7));
                     const Value y = e.mul(e.select(kept, e.input(0), e.constant(0)), e.uniform(4, true));
                     const TensorId x = c.input("x", {3, 2, 3, 5}, type, 1);
                     const TensorId state =
                         c.input("state", {1, 1, 1, 4}, DType::i32, Values{17, -5, 3, 1000}, Region::S);
                     c.add(Op::pointwise, {x, state},
                           std::make_shared<PointwiseAttributes>(e.finish({y}, 1), std::vector<DType>{type}));
                   },
                   1, type});
}

inline void add_reduce_cases(std::vector<CudaCase>& cases, DType type) {
  struct Target {
    const char* name;
    bool n, h, w, c;
  };
  const Target targets[] = {
      {"[1,1,1,C]", false, false, false, true},  {"[N,1,1,C]", true, false, false, true},
      {"[N,H,W,1]", true, true, true, false},    {"[N,1,1,1]", true, false, false, false},
      {"[1,1,1,1]", false, false, false, false}, {"everything", true, true, true, true}};
  // Small and odd; enough rows for several pieces; few rows, many columns; one column; few long rows.
  for (const Shape& s : {Shape{2, 3, 5, 7}, Shape{8, 40, 40, 16}, Shape{128, 1, 1, 520}, Shape{33, 9, 9, 1},
                         Shape{2, 60, 60, 64}})
    for (const Target& t : targets)
      cases.push_back({fmt::format("reduce {} {} to {}", name_of(type), to_string(s), t.name),
                       [s, t, type](Case& c) {
                         ExpressionBuilder e;
                         const Value product = e.mul(e.input(0), e.sub(e.input(1), e.input(2)));
                         const TensorId x = c.input("x", s, type, 1), y = c.input("y", s, type, 2),
                                        mean = c.input("mean", {1, 1, 1, s.c}, DType::f32, 3);
                         c.add(Op::reduce, {x, y, mean},
                               std::make_shared<ReduceAttributes>(e.finish({e.input(0), product}, 3),
                                                                  ReduceKind::sum, t.n, t.h, t.w, t.c));
                         ExpressionBuilder m;
                         c.add(Op::reduce, {x},
                               std::make_shared<ReduceAttributes>(m.finish({m.input(0)}, 1), ReduceKind::max,
                                                                  t.n, t.h, t.w, t.c));
                       },
                       s.elements(), DType::f32});
}

inline void add_batch_norm_cases(std::vector<CudaCase>& cases, DType type) {
  for (const Shape& s : {Shape{4, 7, 7, 24}, Shape{2, 3, 3, 7}, Shape{32, 28, 28, 16}, Shape{2, 1, 1, 300},
                         Shape{64, 1, 1, 1}})
    cases.push_back({fmt::format("batch_norm_statistics {} {}", name_of(type), to_string(s)),
                     [s, type](Case& c) {
                       const auto a = std::make_shared<BatchNormAttributes>();
                       // A mean of three standard deviations: cancellation would show.
                       const TensorId x = c.input("x", s, type, random_values(s.elements(), 1, 1, 3));
                       const Shape v{1, 1, 1, s.c};
                       c.add(Op::batch_norm_statistics,
                             {x, c.input("mean", v, DType::f32, random_values(s.c, 2), Region::B),
                              c.input("variance", v, DType::f32, random_values(s.c, 3, 0.5, 2), Region::B)},
                             a);
                     },
                     s.pixels(), DType::f32});
}

inline void add_cross_entropy_cases(std::vector<CudaCase>& cases, DType type) {
  struct Kind {
    Shape logits;
    float smoothing;
    bool ignore;
  };
  for (const Kind& k : {Kind{{33, 1, 1, 10}, 0, false}, Kind{{16, 1, 1, 1000}, 0.1f, false},
                        Kind{{2, 3, 5, 4}, 0.1f, true}, Kind{{300, 1, 1, 3}, 0, true}})
    cases.push_back(
        {fmt::format("cross_entropy {} {}", name_of(type), to_string(k.logits)),
         [k, type](Case& c) {
           auto a = std::make_shared<CrossEntropyAttributes>();
           a->label_smoothing = k.smoothing;
           a->weight = 0.5f;
           a->gradient_type = type;
           const int64_t rows = k.logits.pixels();
           Values labels = random_integers(rows, 5, k.logits.c);
           for (int64_t r = 0; k.ignore && r < rows; r += 4) labels[size_t(r)] = a->ignore_index;
           // Integers tie often.
           const TensorId x = c.input("logits", k.logits, type, random_integers(k.logits.elements(), 1, 9));
           const TensorId y = c.input("labels", {k.logits.n, k.logits.h, k.logits.w, 1}, DType::i32, labels);
           const TensorId n = c.input("inverse_count", {}, DType::f32, Values{1.0 / double(rows)}, Region::S);
           const TensorId scale = c.input("loss_scale", {}, DType::f32, Values{256}, Region::S);
           c.add(Op::cross_entropy, {x, y, n}, a);
           c.add(Op::cross_entropy_backward, {x, y, n, scale}, a);
         },
         k.logits.pixels(), type});
}

// The same with partners' labels, of which some are ignored.
inline void add_mixed_cross_entropy_cases(std::vector<CudaCase>& cases, DType type) {
  for (const Shape& s : {Shape{33, 1, 1, 10}, Shape{16, 1, 1, 1000}})
    for (const float smoothing : {0.0f, 0.1f})
      for (const double share : {0.0, 0.25, 0.5, 0.8125, 1.0})
        cases.push_back({fmt::format("cross_entropy_mixed {} {} smoothing {} share {}", name_of(type),
                                     to_string(s), smoothing, share),
                         [=](Case& c) {
                           auto a = std::make_shared<CrossEntropyAttributes>();
                           a->label_smoothing = smoothing;
                           a->gradient_type = type;
                           const auto labels = [&](const char* name, uint64_t seed) {
                             Values v = random_integers(s.n, seed, s.c);
                             for (size_t r = seed; r < v.size(); r += 4) v[r] = a->ignore_index;
                             return c.input(name, {s.n, 1, 1, 1}, DType::i32, v);
                           };
                           const TensorId x = c.input("logits", s, type, random_integers(s.elements(), 1, 9));
                           const TensorId y = labels("labels", 2), z = labels("partners", 4);
                           const TensorId n =
                               c.input("inverse_count", {}, DType::f32, Values{1.0 / double(s.n)}, Region::S);
                           const TensorId scale =
                               c.input("loss_scale", {}, DType::f32, Values{256}, Region::S);
                           const TensorId own = c.input("own", {}, DType::f32, Values{share});
                           c.add(Op::cross_entropy, {x, y, n, z, own}, a);
                           c.add(Op::cross_entropy_backward, {x, y, n, scale, z, own}, a);
                         },
                         s.n, type});
}

inline Values record_with(const BatchMix& mix) {
  Values record(kStepRecordBytes, 0);
  unsigned char bytes[sizeof mix];
  std::memcpy(bytes, &mix, sizeof mix);
  std::copy_n(bytes, sizeof mix, record.begin() + kMixOffset);
  return record;
}

// MixUp and CutMix; sizes of whole and of odd vectors, and images padded to four channels.
inline void add_mixed_load_cases(std::vector<CudaCase>& cases, DType type) {
  struct Kind {
    const char* name;
    BatchMix mix;
  };
  const Kind kinds[] = {{"mixup", {0, 0, 8, 8, 0.3f, 0.3f}},
                        {"cutmix", {1, 2, 5, 7, 0, 0.6875f}},
                        {"nothing", {0, 0, 0, 0, 0, 1}}};
  for (const Kind& k : kinds)
    for (const DType from : {DType::u8, DType::f32})
      for (const Shape& s : {Shape{4, 8, 8, 3}, Shape{3, 5, 7, 1}, Shape{1, 8, 8, 3}, Shape{3, 7, 5, 3}})
        for (const int64_t channels : {int64_t{0}, int64_t{4}}) {
          if (channels != 0 && (type == DType::f32 || s.c != 3)) continue;
          cases.push_back({fmt::format("load_batch_mixed{} {} {} to {} {}", channels == 0 ? "" : "_padded",
                                       k.name, name_of(from), name_of(type), to_string(s)),
                           [=](Case& c) {
                             auto a = std::make_shared<LoadBatchAttributes>();
                             a->mean.assign(size_t(s.c), 100.0f);
                             a->scale.assign(size_t(s.c), 0.02f);
                             a->image_type = type;
                             a->channels = channels;
                             a->mixes = true;
                             std::vector<TensorId> in;
                             for (const uint64_t slot : {uint64_t{0}, uint64_t{1}}) {
                               in.push_back(c.input("record", {1, 1, 1, kStepRecordBytes}, DType::u8,
                                                    record_with(k.mix), Region::I));
                               in.push_back(c.input("labels", {s.n, 1, 1, 1}, DType::i32,
                                                    random_integers(s.n, 3 + slot, 10), Region::I));
                               in.push_back(c.input("images", s, from,
                                                    random_integers(s.elements(), 1 + slot, 256), Region::I));
                             }
                             in.push_back(c.input("step", {}, DType::i32, Values{1}, Region::S));
                             c.add(Op::load_batch, in, a);
                           },
                           1, type});
        }
}

inline void add_load_batch_cases(std::vector<CudaCase>& cases, DType type) {
  for (const DType from : {DType::u8, DType::f32})
    for (const Shape& s : {Shape{4, 8, 8, 3}, Shape{3, 5, 5, 1}})
      for (const int step : {6, 7})
        cases.push_back(
            {fmt::format("load_batch {} to {} {} step {}", name_of(from), name_of(type), to_string(s), step),
             [s, from, type, step](Case& c) {
               auto a = std::make_shared<LoadBatchAttributes>();
               for (int64_t i = 0; i < s.c; ++i) {
                 a->mean.push_back(100.0f + float(i) * 10);
                 a->scale.push_back(0.02f + float(i) * 0.001f);
               }
               a->image_type = type;
               std::vector<TensorId> in;
               for (const uint64_t slot : {uint64_t{0}, uint64_t{1}}) {
                 // A record of small floats, 1.0 in each word: integers read as their bits.
                 Values record(kStepRecordBytes, 0);
                 for (size_t i = 0; i < record.size(); i += 4)
                   record[i + 2] = 0x80, record[i + 3] = 0x3f + double(slot);
                 in.push_back(c.input("record", {1, 1, 1, kStepRecordBytes}, DType::u8, record, Region::I));
                 in.push_back(c.input("labels", {s.n, 1, 1, 1}, DType::i32,
                                      random_integers(s.n, 3 + slot, 10), Region::I));
                 in.push_back(
                     c.input("images", s, from, random_integers(s.elements(), 1 + slot, 256), Region::I));
               }
               in.push_back(c.input("step", {}, DType::i32, Values{double(step)}, Region::S));
               c.add(Op::load_batch, in, a);
             },
             1, type});
}

struct ConvGeometry {
  Shape x;
  int64_t k, r, s, stride, pad, groups;
  int64_t dilation = 1;
  bool uneven = false;  // one row and column more of padding at the end
};

inline void add_conv_cases(std::vector<CudaCase>& cases, DType type) {
  const ConvGeometry geometries[] = {
      {{2, 8, 8, 16}, 32, 3, 3, 1, 1, 1},     {{2, 9, 9, 16}, 32, 1, 1, 2, 0, 1},
      {{4, 28, 28, 1}, 6, 5, 5, 1, 2, 1},     {{4, 14, 14, 6}, 16, 5, 5, 1, 0, 1},
      {{2, 32, 32, 3}, 16, 3, 3, 1, 1, 1},    {{2, 15, 17, 8}, 8, 3, 3, 2, 1, 1},
      {{2, 7, 7, 12}, 24, 3, 3, 1, 1, 3},     {{2, 9, 9, 16}, 16, 3, 3, 2, 1, 16},
      {{1, 12, 11, 8}, 8, 3, 2, 1, 2, 1, 2},  {{2, 10, 10, 8}, 16, 4, 4, 2, 1, 1, 1, true},
      {{128, 32, 32, 16}, 16, 3, 3, 1, 1, 1}, {{3, 14, 13, 72}, 72, 5, 5, 2, 2, 72},
      {{2, 9, 7, 24}, 24, 5, 5, 1, 2, 24},    {{2, 11, 11, 144}, 144, 3, 3, 1, 1, 144},
      {{4, 16, 16, 8}, 8, 3, 3, 2, 0, 8}};
  for (const ConvGeometry& g : geometries)
    cases.push_back({fmt::format("conv {} {} k{} {}x{} s{} p{} g{} d{}{}", name_of(type), to_string(g.x), g.k,
                                 g.r, g.s, g.stride, g.pad, g.groups, g.dilation, g.uneven ? " uneven" : ""),
                     [g, type](Case& c) {
                       auto a = std::make_shared<ConvAttributes>();
                       a->stride_h = a->stride_w = g.stride;
                       a->pad_top = a->pad_left = g.pad;
                       a->pad_bottom = a->pad_right = g.pad + (g.uneven ? 1 : 0);
                       a->dilation_h = a->dilation_w = g.dilation;
                       a->groups = g.groups;
                       const TensorId x = c.input("x", g.x, type, 1),
                                      w = c.input("w", {g.k, g.r, g.s, g.x.c / g.groups}, type, 2),
                                      bias = c.input("bias", {1, 1, 1, g.k}, type, 3);
                       c.add(Op::conv, {x, w, kNoTensor}, a);
                       const TensorId y = c.add(Op::conv, {x, w, bias}, a)[0];
                       c.add(Op::conv, {x, w, c.input("wide bias", {1, 1, 1, g.k}, DType::f32, 5)}, a);
                       const TensorId dy = c.input("dy", c.graph.at(y).shape, type, 4);
                       c.add(Op::conv_backward_data, {dy, w, x}, a);
                       c.add(Op::conv_backward_weights, {x, dy, w}, a);
                     },
                     std::max(g.r * g.s * std::max(g.x.c, g.k) / g.groups, g.x.pixels()), type});
}

inline void add_gemm_cases(std::vector<CudaCase>& cases, DType type) {
  struct Product {
    int64_t rows, columns, inner;
    bool bias;
  };
  for (const Product& p : {Product{128, 10, 256, true}, Product{33, 17, 65, true},
                           Product{64, 512, 784, false}, Product{5, 1, 3, true}, Product{1, 1000, 64, false}})
    for (const int transposes : {0, 1, 2, 3})
      for (const bool widened : {false, true})
        cases.push_back(
            {fmt::format("gemm {} {}x{}x{} transposes {}{}", name_of(type), p.rows, p.columns, p.inner,
                         transposes, widened ? " to f32" : ""),
             [p, transposes, widened, type](Case& c) {
               auto a = std::make_shared<GemmAttributes>();
               a->transpose_a = transposes & 1;
               a->transpose_b = transposes & 2;
               a->alpha = 0.5f;
               if (a->transpose_a) a->has_out = true, a->out = {p.rows, 1, 1, p.columns};
               if (widened) a->out_follows_a = false, a->out_type = DType::f32;
               const TensorId x =
                   c.input("a", a->transpose_a ? Shape{p.inner, 1, 1, p.rows} : Shape{p.rows, 1, 1, p.inner},
                           type, 1);
               const TensorId w = c.input(
                   "b", a->transpose_b ? Shape{p.columns, 1, 1, p.inner} : Shape{p.inner, 1, 1, p.columns},
                   type, 2);
               const TensorId bias = p.bias ? c.input("bias", {1, 1, 1, p.columns}, type, 3) : kNoTensor;
               c.add(Op::gemm, {x, w, bias}, a);
               if (p.bias)
                 c.add(Op::gemm, {x, w, c.input("wide bias", {1, 1, 1, p.columns}, DType::f32, 5)}, a);
             },
             p.inner, widened ? DType::f32 : type});
}

void add_copy_cases(std::vector<CudaCase>& cases, DType type);   // copy_cases.cpp
void add_row_cases(std::vector<CudaCase>& cases, DType type);    // row_cases.cpp
void add_fused_cases(std::vector<CudaCase>& cases, DType type);  // fused_cases.cpp

inline std::vector<CudaCase> cuda_cases() {
  std::vector<CudaCase> cases;
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    add_pointwise_cases(cases, type);
    add_reduce_cases(cases, type);
    add_batch_norm_cases(cases, type);
    add_pool_cases(cases, type);
    add_cross_entropy_cases(cases, type);
    add_load_batch_cases(cases, type);
    add_mixed_cross_entropy_cases(cases, type);
    add_mixed_load_cases(cases, type);
    add_conv_cases(cases, type);
    add_gemm_cases(cases, type);
    add_fused_cases(cases, type);
    add_copy_cases(cases, type);
    add_row_cases(cases, type);
  }
  return cases;
}

}  // namespace ren::test
