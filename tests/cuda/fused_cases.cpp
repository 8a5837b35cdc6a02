// SPDX-License-Identifier: Apache-2.0
// The forms of ops that only passes make: a bias left out, values stored in passing, padded images.
#include "cuda/cases.h"

namespace ren::test {
namespace {

void add_shift_case(std::vector<CudaCase>& cases, DType type) {
  const Shape s{32, 12, 12, 24}, v{1, 1, 1, 24};
  cases.push_back({fmt::format("batch_norm_statistics with shift {}", name_of(type)),
                   [=](Case& c) {
                     const TensorId x = c.input("x", s, type, random_values(s.elements(), 1, 1, 3));
                     const TensorId mean = c.input("mean", v, DType::f32, random_values(s.c, 2), Region::B);
                     const TensorId variance =
                         c.input("variance", v, DType::f32, random_values(s.c, 3, 0.5, 2), Region::B);
                     c.add(Op::batch_norm_statistics, {x, mean, variance, c.input("shift", v, DType::f32, 4)},
                           std::make_shared<BatchNormAttributes>());
                   },
                   s.pixels(), DType::f32});
}

// g = a + b where y > 0, stored; sum(g) and sum(g * (y - mean)).
void add_stored_case(std::vector<CudaCase>& cases, DType type, const Shape& s) {
  cases.push_back({fmt::format("reduce that stores {} {}", name_of(type), to_string(s)),
                   [=](Case& c) {
                     ExpressionBuilder e;
                     const Value y = e.input(2);
                     const Value g =
                         e.select(e.less(e.constant(0), y), e.add(e.input(0), e.input(1)), e.constant(0));
                     const Expression all = e.finish({g, e.mul(g, e.sub(y, e.input(3))), g}, 4);
                     const TensorId a = c.input("a", s, type, 1), b = c.input("b", s, type, 2),
                                    x = c.input("y", s, type, 3),
                                    mean = c.input("mean", {1, 1, 1, s.c}, DType::f32, 4);
                     c.add(Op::reduce, {a, b, x, mean},
                           std::make_shared<ReduceAttributes>(all, ReduceKind::sum, false, false, false, true,
                                                              std::vector<DType>{type}));
                   },
                   s.pixels(), type});
}

// y = max(a + b, 0) with its sign in bits, and sum(g where y > 0) from the bits.
void add_mask_case(std::vector<CudaCase>& cases, DType type, const Shape& s) {
  cases.push_back(
      {fmt::format("pointwise with mask {} {}", name_of(type), to_string(s)),
       [=](Case& c) {
         ExpressionBuilder e;
         const Value y = e.maximum(e.add(e.input(0), e.input(1)), e.constant(0));
         const Expression forward = e.finish({y, e.less(e.constant(0), y)}, 2);
         const TensorId a = c.input("a", s, type, 1), b = c.input("b", s, type, 2);
         const TensorId mask =
             c.add(Op::pointwise, {a, b},
                   std::make_shared<PointwiseAttributes>(forward, std::vector<DType>{type, DType::b1}))[1];
         ExpressionBuilder masked;
         const Value g = masked.select(masked.less(masked.constant(0), masked.input(0)), masked.input(1),
                                       masked.constant(0));
         c.add(Op::reduce, {mask, c.input("g", s, type, 3)},
               std::make_shared<ReduceAttributes>(masked.finish({g, g}, 2), ReduceKind::sum, false, false,
                                                  false, true, std::vector<DType>{type}));
       },
       s.pixels(), type});
}

void add_padded_conv_case(std::vector<CudaCase>& cases, DType type, int64_t k, int64_t kernel,
                          int64_t stride) {
  cases.push_back({fmt::format("conv of padded images {} {}x{} s{}", name_of(type), kernel, kernel, stride),
                   [=](Case& c) {
                     auto a = std::make_shared<ConvAttributes>();
                     a->stride_h = a->stride_w = stride;
                     a->padding_channels = 1;
                     a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = kernel / 2;
                     const Shape s{4, 32, 32, 4};
                     // Padding is multiplied by nothing, whatever it holds.
                     const TensorId x = c.input("x", s, type, 1);
                     const TensorId w = c.input("w", {k, kernel, kernel, 3}, type, 2);
                     const TensorId bias = c.input("bias", {1, 1, 1, k}, DType::f32, 3);
                     const TensorId y = c.add(Op::conv, {x, w, bias}, a)[0];
                     const TensorId dy = c.input("dy", c.graph.at(y).shape, type, 4);
                     c.add(Op::conv_backward_weights, {x, dy, w}, a);
                   },
                   4 * 32 * 32, type});
}

// A convolution that also sums its output, and the statistics from these sums.
void add_summed_conv_case(std::vector<CudaCase>& cases, DType type, const Shape& s, int64_t k, int64_t kernel,
                          int64_t groups = 1) {
  cases.push_back({fmt::format("conv with sums {} {} k{} {}x{} g{}", name_of(type), to_string(s), k, kernel,
                               kernel, groups),
                   [=](Case& c) {
                     auto a = std::make_shared<ConvAttributes>();
                     a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = kernel / 2;
                     a->sums = true;
                     a->groups = groups;
                     const TensorId x = c.input("x", s, type, 1);
                     const TensorId w = c.input("w", {k, kernel, kernel, s.c / groups}, type, 2);
                     const auto out = c.add(Op::conv, {x, w, kNoTensor}, a);
                     const Shape v{1, 1, 1, k};
                     const TensorId mean = c.input("mean", v, DType::f32, random_values(k, 2), Region::B);
                     const TensorId variance =
                         c.input("variance", v, DType::f32, random_values(k, 3, 0.5, 2), Region::B);
                     c.add(Op::batch_norm_statistics, {out[0], mean, variance, kNoTensor, out[1], out[2]},
                           std::make_shared<BatchNormAttributes>());
                   },
                   s.pixels() * kernel * kernel * s.c / groups, type});
}

void add_padded_load_case(std::vector<CudaCase>& cases, DType type, DType from) {
  cases.push_back(
      {fmt::format("load_batch {} to padded {}", name_of(from), name_of(type)),
       [=](Case& c) {
         auto a = std::make_shared<LoadBatchAttributes>();
         a->mean = {100, 110, 120}, a->scale = {0.02f, 0.021f, 0.022f};
         a->image_type = type;
         a->channels = 4;
         const Shape s{3, 7, 5, 3};
         std::vector<TensorId> in;
         for (const uint64_t slot : {uint64_t{0}, uint64_t{1}}) {
           in.push_back(c.input("record", {1, 1, 1, kStepRecordBytes}, DType::u8, Values(kStepRecordBytes, 0),
                                Region::I));
           in.push_back(
               c.input("labels", {s.n, 1, 1, 1}, DType::i32, random_integers(s.n, 3 + slot, 10), Region::I));
           in.push_back(c.input("images", s, from, random_integers(s.elements(), 1 + slot, 256), Region::I));
         }
         in.push_back(c.input("step", {}, DType::i32, Values{1}, Region::S));
         c.add(Op::load_batch, in, a);
       },
       1, type});
}

}  // namespace

void add_fused_cases(std::vector<CudaCase>& cases, DType type) {
  add_shift_case(cases, type);
  for (const Shape& s :
       {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{128, 1, 1, 520}, Shape{2, 60, 60, 72}})
    add_stored_case(cases, type, s);
  if (type == DType::f32) return;
  for (const Shape& s : {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{2, 3, 3, 8}, Shape{64, 14, 14, 256}})
    add_mask_case(cases, type, s);
  add_summed_conv_case(cases, type, {128, 32, 32, 16}, 16, 3);  // hundreds of blocks add to each sum
  add_summed_conv_case(cases, type, {4, 14, 14, 64}, 128, 1);
  add_summed_conv_case(cases, type, {2, 9, 9, 24}, 40, 3);
  add_summed_conv_case(cases, type, {2, 9, 9, 5}, 7, 3);
  add_summed_conv_case(cases, type, {16, 14, 13, 72}, 72, 5, 72);
  add_summed_conv_case(cases, type, {3, 9, 10, 24}, 24, 3, 24);
  add_padded_conv_case(cases, type, 64, 7, 2);
  add_padded_conv_case(cases, type, 16, 3, 1);
  for (const DType from : {DType::u8, DType::f32}) add_padded_load_case(cases, type, from);
}

}  // namespace ren::test
