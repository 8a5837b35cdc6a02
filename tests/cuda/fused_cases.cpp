// SPDX-License-Identifier: Apache-2.0
// The forms of ops that only passes make: a bias left out, values stored in passing, padded images.
#include "cuda/cases.h"
#include "engine/ops/batch_norm/from_sums.h"

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

// Layers of a convolution's sums, normalised in passing, and the node that joins their statistics: more
// layers than one block's channels, one without running statistics, one with a shift.
void add_from_sums_case(std::vector<CudaCase>& cases, DType type, const Shape& s) {
  cases.push_back(
      {fmt::format("batch_norm_from_sums {} {}", name_of(type), to_string(s)),
       [=](Case& c) {
         auto joined = std::make_shared<BatchNormFromSumsAttributes>();
         std::vector<TensorId> inputs;
         for (const int64_t channels : {s.c, s.c + 3, s.c}) {
           const Shape x{s.n, s.h, s.w, channels}, v{1, 1, 1, channels};
           const size_t layer = joined->layers.size();
           const Values values = random_values(x.elements(), 1 + layer, -1, 2);
           Values sums(size_t(channels), 0), squares(size_t(channels), 0);
           for (size_t i = 0; i < values.size(); ++i) {
             const double value = stored(values[i], type);
             sums[i % size_t(channels)] += value;
             squares[i % size_t(channels)] += value * value;
           }
           const TensorId in = c.input("x", x, type, values), sum = c.input("sums", v, DType::f32, sums),
                          square = c.input("squares", v, DType::f32, squares);
           inputs.insert(inputs.end(), {sum, square});
           for (const uint64_t seed : {2, 3})
             inputs.push_back(layer == 1 ? kNoTensor
                                         : c.input("running", v, DType::f32,
                                                   random_values(channels, seed, 0.5, 2), Region::B));
           inputs.push_back(layer == 2 ? c.input("shift", v, DType::f32, 4) : kNoTensor);
           joined->layers.push_back({x.pixels(), 1e-3f, 0.75f});
           ExpressionBuilder e;
           const auto by = e.inline_expression(statistics_expression(x.pixels(), 1e-3f),
                                               std::vector{e.input(0), e.input(1)});
           const Value y = e.mul(e.sub(e.input(2), by[0]), by[1]);
           c.add(Op::pointwise, {sum, square, in},
                 std::make_shared<PointwiseAttributes>(e.finish({y}, 3), std::vector<DType>{type}));
           c.add(Op::reduce, {sum, square, in},
                 std::make_shared<ReduceAttributes>(e.finish({e.mul(y, y)}, 3), ReduceKind::sum, true, false,
                                                    false, true));
         }
         c.add(Op::batch_norm_from_sums, inputs, joined);
       },
       s.pixels(), type});
}

// Both branches' gradients behind a residual sum: two results of one gradient and thirteen operands.
void add_two_gradients_case(std::vector<CudaCase>& cases, DType type, const Shape& s) {
  cases.push_back(
      {fmt::format("pointwise of two gradients {} {}", name_of(type), to_string(s)),
       [=](Case& c) {
         ExpressionBuilder e;
         std::vector<TensorId> operands{c.input("g", s, type, 1)};
         std::vector<Value> results;
         for (const uint64_t branch : {0, 1}) {
           const int first = int(operands.size());
           operands.push_back(c.input("x", s, type, 2 + branch));
           for (const char* name : {"mean", "inverse", "sum", "dot", "scale"})
             operands.push_back(c.input(name, {1, 1, 1, s.c}, DType::f32, 10 * branch + operands.size()));
           const auto in = [&](int k) { return e.input(first + k); };
           const Value normalised = e.mul(e.sub(in(0), in(1)), in(2));
           const Value centred = e.sub(e.sub(e.input(0), in(3)), e.mul(normalised, in(4)));
           results.push_back(e.mul(e.mul(centred, in(2)), in(5)));
         }
         const int count = int(operands.size());
         c.add(
             Op::pointwise, operands,
             std::make_shared<PointwiseAttributes>(e.finish(results, count), std::vector<DType>{type, type}));
       },
       4, type});
}

Shape small_grid(const Shape& s, const OperandView& by) {
  return {s.n, (s.h + by.h - 1) / by.h, (s.w + by.w - 1) / by.w, s.c};
}

// A gradient on a small grid, g = spread(a) + b where y > 0, and g * (y - mean).
struct SpreadGradient {
  SpreadGradient(Case& c, DType type, const Shape& s, const OperandView& by, DType small) : by_(by) {
    const Value y = e.input(2);
    g = e.select(e.less(e.constant(0), y), e.add(e.input(0), e.input(1)), e.constant(0));
    dot = e.mul(g, e.sub(y, e.input(3)));
    operands = {c.input("a", small_grid(s, by), small, 1), c.input("b", s, type, 2), c.input("y", s, type, 3),
                c.input("mean", {1, 1, 1, s.c}, DType::f32, 4)};
  }
  template <typename T>
  std::shared_ptr<T> spread(T attributes) const {
    attributes.views = {by_, {}, {}, {}};
    return std::make_shared<T>(std::move(attributes));
  }
  ExpressionBuilder e;
  Value g, dot;
  std::vector<TensorId> operands;

 private:
  OperandView by_;
};

// Summed by channels and stored, and summed by pixel.
void add_spread_sums_case(std::vector<CudaCase>& cases, DType type, const Shape& s, const OperandView& by,
                          DType small) {
  cases.push_back({fmt::format("spread reduce {} {} by {}x{} of {}", name_of(type), to_string(s), by.h, by.w,
                               name_of(small)),
                   [=](Case& c) {
                     SpreadGradient t(c, type, s, by, small);
                     c.add(Op::reduce, t.operands,
                           t.spread(ReduceAttributes(t.e.finish({t.g, t.dot, t.g}, 4), ReduceKind::sum, false,
                                                     false, false, true, {type})));
                     c.add(Op::reduce, t.operands,
                           t.spread(ReduceAttributes(t.e.finish({t.g, t.dot}, 4), ReduceKind::sum, true, true,
                                                     true, false)));
                   },
                   std::max(s.pixels(), s.c), type});
}

void add_spread_pointwise_case(std::vector<CudaCase>& cases, DType type, const Shape& s,
                               const OperandView& by, DType small) {
  cases.push_back(
      {fmt::format("spread pointwise {} {} by {}x{} of {}", name_of(type), to_string(s), by.h, by.w,
                   name_of(small)),
       [=](Case& c) {
         SpreadGradient t(c, type, s, by, small);
         c.add(Op::pointwise, t.operands,
               t.spread(PointwiseAttributes(t.e.finish({t.g, t.dot}, 4), {type, DType::f32})));
         // Two grids, and nothing by channels.
         const OperandView turned{by.w, by.h};
         ExpressionBuilder e;
         auto two = std::make_shared<PointwiseAttributes>(
             e.finish({e.add(e.sub(e.input(0), e.input(1)), e.input(2))}, 3), std::vector<DType>{type});
         two->views = {by, {}, turned};
         c.add(Op::pointwise,
               {t.operands[0], t.operands[1], c.input("turned", small_grid(s, turned), type, 5)}, two);
       },
       4, type});
}

void add_spread_cases(std::vector<CudaCase>& cases, DType type) {
  const DType other = type == DType::f32 ? DType::f16 : DType::f32;
  struct Geometry {
    Shape s;
    OperandView by;
    DType small;
  };
  for (const Geometry& g : {Geometry{{8, 40, 40, 16}, {2, 2}, type},
                            {{3, 7, 9, 24}, {2, 2}, type},
                            {{4, 14, 14, 256}, {2, 2}, type},
                            {{1, 5, 6, 8}, {2, 2}, type},
                            {{2, 5, 7, 7}, {2, 2}, type},
                            {{2, 6, 5, 1}, {2, 2}, type},
                            {{3, 7, 8, 40}, {1, 3}, other},
                            {{3, 7, 1, 16}, {3, 2}, type}}) {
    add_spread_sums_case(cases, type, g.s, g.by, g.small);
    add_spread_pointwise_case(cases, type, g.s, g.by, g.small);
  }
}

// A sum of windows of one tensor and of another: pointwise, by channels with the sum stored, and by pixel.
void add_window_case(std::vector<CudaCase>& cases, DType type, const Shape& s, int64_t of, int64_t first,
                     int64_t second) {
  cases.push_back(
      {fmt::format("windows {} {} of {} from {} and {}", name_of(type), to_string(s), of, first, second),
       [=](Case& c) {
         const TensorId x = c.input("x", {s.n, s.h, s.w, of}, type, 1), y = c.input("y", s, type, 2),
                        scale = c.input("scale", {1, 1, 1, s.c}, DType::f32, 3);
         ExpressionBuilder e;
         const Value sum = e.add(e.add(e.input(0), e.input(1)), e.mul(e.input(2), e.input(3)));
         const std::vector<OperandView> views{{1, 1, first, s.c}, {1, 1, second, s.c}, {}, {}};
         const auto with_views = [&](auto attributes) {
           attributes.views = views;
           return std::make_shared<decltype(attributes)>(std::move(attributes));
         };
         const std::vector<TensorId> operands{x, x, y, scale};
         c.add(Op::pointwise, operands, with_views(PointwiseAttributes(e.finish({sum}, 4), {type})));
         c.add(Op::reduce, operands,
               with_views(ReduceAttributes(e.finish({sum, sum}, 4), ReduceKind::sum, false, false, false,
                                           true, {type})));
         c.add(Op::reduce, operands,
               with_views(ReduceAttributes(e.finish({sum}, 4), ReduceKind::sum, true, true, true, false)));
         // On a smaller grid besides.
         const OperandView both{2, 2, first, s.c};
         auto a = std::make_shared<PointwiseAttributes>(e.finish({sum}, 4), std::vector<DType>{type});
         a->views = {both, {1, 1, second, s.c}, {}, {}};
         Shape small = small_grid(s, both);
         small.c = of;
         c.add(Op::pointwise, {c.input("small", small, type, 4), x, y, scale}, a);
       },
       std::max(s.pixels(), s.c), type});
}

// The gradient of a strided convolution of one pixel as training computes it: on the small grid.
void add_compact_gradient_case(std::vector<CudaCase>& cases, DType type, const Shape& dy, int64_t channels) {
  cases.push_back(
      {fmt::format("conv gradient without gaps {} {}", name_of(type), to_string(dy)),
       [=](Case& c) {
         const TensorId y = c.input("dy", dy, type, 1), w = c.input("w", {dy.c, 1, 1, channels}, type, 2);
         const TensorId dx = c.add(Op::conv_backward_data, {y, w}, std::make_shared<ConvAttributes>())[0];
         ExpressionBuilder e;
         auto a = std::make_shared<PointwiseAttributes>(e.finish({e.add(e.input(0), e.input(1))}, 2),
                                                        std::vector<DType>{type});
         a->views = {{2, 2}, {}};
         const Shape full{dy.n, 2 * dy.h - 1, 2 * dy.w, channels};
         c.add(Op::pointwise, {dx, c.input("b", full, type, 3)}, a);
       },
       dy.c, type});
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

// A max pool of relu((x - mean) * inverse * scale + bias), or of relu(x) alone. All of it is exact in every type, so
// that equal values are equal for the reference, too, and the place of the first of them is the same.
void add_computing_pool_case(std::vector<CudaCase>& cases, DType type, const Shape& s, int64_t kernel,
                             int64_t stride, int64_t pad, bool normalised) {
  cases.push_back(
      {fmt::format("max_pool that computes {} {} k{} s{}{}", name_of(type), to_string(s), kernel, stride,
                   normalised ? "" : " relu"),
       [=](Case& c) {
         const auto a = test::pool(kernel, stride, pad, false, false);
         std::vector<TensorId> operands;
         const auto operand = [&](const char* name, const std::vector<double>& of) {
           Values values = random_integers(s.c, operands.size(), int64_t(of.size()));
           for (double& v : values) v = of[size_t(v)];
           operands.push_back(c.input(name, {1, 1, 1, s.c}, DType::f32, values));
         };
         if (normalised) operand("mean", {0, 1, 2, 3});
         const TensorId x = c.input("x", s, type, random_integers(s.elements(), 1, 6));
         operands.push_back(x);
         if (normalised) {
           operand("inverse", {0.5, 1, 2});
           operand("scale", {-1, -0.5, 1, 2});
           operand("bias", {-2, -1, 0, 1});
         }
         ExpressionBuilder e;
         Value value = e.input(0);
         if (normalised)
           value =
               e.add(e.mul(e.mul(e.sub(e.input(1), e.input(0)), e.input(2)), e.input(3)), e.input(4));
         a->expression = e.finish({e.maximum(value, e.constant(0))}, int(operands.size()));
         const auto out = c.add(Op::max_pool, operands, a);
         c.add(Op::max_pool_backward, {c.input("dy", c.graph.at(out[0]).shape, type, 2), out[1], x},
               test::pool(kernel, stride, pad, false, false));
       },
       kernel * kernel, type});
}

}  // namespace

void add_fused_cases(std::vector<CudaCase>& cases, DType type) {
  add_shift_case(cases, type);
  for (const Shape& s :
       {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{128, 1, 1, 520}, Shape{2, 60, 60, 72}})
    add_stored_case(cases, type, s);
  add_spread_cases(cases, type);
  add_window_case(cases, type, {8, 14, 14, 32}, 256, 0, 224);
  add_window_case(cases, type, {3, 5, 7, 24}, 40, 8, 16);
  add_window_case(cases, type, {2, 3, 5, 6}, 15, 5, 9);  // no two neighbours are aligned
  add_window_case(cases, type, {2, 3, 5, 1}, 9, 0, 8);
  add_window_case(cases, type, {5, 1, 1, 64}, 192, 64, 128);
  add_window_case(cases, type, {1, 1, 9, 16}, 48, 16, 32);
  add_compact_gradient_case(cases, type, {4, 7, 7, 64}, 128);
  add_compact_gradient_case(cases, type, {2, 4, 3, 24}, 40);
  for (const bool normalised : {true, false}) {
    add_computing_pool_case(cases, type, {8, 41, 40, 24}, 3, 2, 1, normalised);  // threads stay with channels
    add_computing_pool_case(cases, type, {2, 9, 8, 24}, 2, 2, 0, normalised);    // and here not
    add_computing_pool_case(cases, type, {2, 9, 7, 5}, 3, 2, 1, normalised);
    add_computing_pool_case(cases, type, {1, 20, 21, 16}, 7, 4, 3, normalised);  // more taps than a thread holds
  }
  if (type == DType::f32) return;
  for (const Shape& s : {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{2, 3, 3, 8}, Shape{64, 14, 14, 256}})
    add_mask_case(cases, type, s);
  add_summed_conv_case(cases, type, {128, 32, 32, 16}, 16, 3);  // hundreds of blocks add to each sum
  add_summed_conv_case(cases, type, {4, 14, 14, 64}, 128, 1);
  add_summed_conv_case(cases, type, {2, 9, 9, 24}, 40, 3);
  add_summed_conv_case(cases, type, {2, 9, 9, 5}, 7, 3);
  add_summed_conv_case(cases, type, {16, 14, 13, 72}, 72, 5, 72);
  add_summed_conv_case(cases, type, {3, 9, 10, 24}, 24, 3, 24);
  for (const Shape& s : {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{16, 7, 7, 520}})
    add_from_sums_case(cases, type, s);
  for (const Shape& s : {Shape{8, 40, 40, 16}, Shape{3, 5, 7, 24}, Shape{2, 7, 7, 2048}})
    add_two_gradients_case(cases, type, s);
  add_padded_conv_case(cases, type, 64, 7, 2);
  add_padded_conv_case(cases, type, 16, 3, 1);
  for (const DType from : {DType::u8, DType::f32}) add_padded_load_case(cases, type, from);
}

}  // namespace ren::test
