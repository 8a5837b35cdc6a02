// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pool/pool.h"

#include <cmath>
#include <limits>

#include "engine/ops/pointwise/operands.h"
#include "engine/ops/pool/window.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {

int64_t pooled_extent(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                      int64_t after, bool ceil_mode) {
  const int64_t room = size + before + after - dilation * (kernel - 1) - 1;
  if (room < 0) return 0;
  int64_t windows = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  // The last window must begin on the input or on the padding before it.
  if (ceil_mode && (windows - 1) * stride >= size + before) --windows;
  return windows;
}

namespace {

Shape output_shape(const PoolAttributes& a, const Shape& x) {
  if (a.kernel_h < 1 || a.kernel_w < 1 || a.stride_h < 1 || a.stride_w < 1 || a.dilation_h < 1 ||
      a.dilation_w < 1)
    fail(StatusCode::invalid_model, "kernel {}x{}, strides {}x{} and dilations {}x{} must be at least 1",
         a.kernel_h, a.kernel_w, a.stride_h, a.stride_w, a.dilation_h, a.dilation_w);
  const int64_t reach_h = (a.kernel_h - 1) * a.dilation_h + 1, reach_w = (a.kernel_w - 1) * a.dilation_w + 1;
  if (std::min({a.pad_top, a.pad_left, a.pad_bottom, a.pad_right}) < 0)
    fail(StatusCode::unsupported, "negative padding {},{},{},{}", a.pad_top, a.pad_left, a.pad_bottom,
         a.pad_right);
  if (std::max(a.pad_top, a.pad_bottom) >= reach_h || std::max(a.pad_left, a.pad_right) >= reach_w)
    fail(StatusCode::unsupported, "padding {},{},{},{} leaves windows of {}x{} that hold nothing but padding",
         a.pad_top, a.pad_left, a.pad_bottom, a.pad_right, reach_h, reach_w);
  const Shape y{
      x.n, pooled_extent(x.h, a.kernel_h, a.stride_h, a.dilation_h, a.pad_top, a.pad_bottom, a.ceil_mode),
      pooled_extent(x.w, a.kernel_w, a.stride_w, a.dilation_w, a.pad_left, a.pad_right, a.ceil_mode), x.c};
  if (y.h < 1 || y.w < 1)
    fail(StatusCode::invalid_model, "a window of {}x{} does not fit into {} with padding {},{},{},{}",
         reach_h, reach_w, to_string(x), a.pad_top, a.pad_left, a.pad_bottom, a.pad_right);
  return y;
}

// What is pooled: the input, or the value of the expression.
TensorType pooled_type(const Node& node, std::span<const TensorType> inputs) {
  const auto& a = node.as<PoolAttributes>();
  if (!a.computes()) {
    check_arity(node, inputs, 1, 1);
    return inputs[0];
  }
  const Shape full = infer_operands(node, inputs);
  for (const TensorType& t : inputs)
    if (t.shape == full) return t;
  fail(StatusCode::invalid_model, "no operand is as large as the value that is pooled");
}

std::vector<TensorType> infer_max(const Node& node, std::span<const TensorType> inputs) {
  const TensorType x = pooled_type(node, inputs);
  check_float("the input", x);
  const auto& a = node.as<PoolAttributes>();
  const Shape y = output_shape(a, x.shape);
  return {{y, x.dtype}, {y, pool_index_type(a)}};
}

std::vector<TensorType> infer_max_backward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 3, 3);
  const auto& a = node.as<PoolAttributes>();
  const Shape y = output_shape(a, inputs[2].shape);
  check_float("the output gradient", inputs[0]);
  check_same_shape("the output gradient", inputs[0].shape, y);
  check_same_shape("the index", inputs[1].shape, y);
  if (inputs[1].dtype != pool_index_type(a))
    fail(StatusCode::invalid_model, "the index has type {} where {} is needed", name_of(inputs[1].dtype),
         name_of(pool_index_type(a)));
  return {inputs[2]};
}

std::vector<TensorType> infer_average(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  return {{output_shape(node.as<PoolAttributes>(), inputs[0].shape), inputs[0].dtype}};
}

std::vector<TensorType> infer_average_backward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 2);
  check_float("the output gradient", inputs[0]);
  check_same_shape("the output gradient", inputs[0].shape,
                   output_shape(node.as<PoolAttributes>(), inputs[1].shape));
  return {inputs[1]};
}

// Calls body(n, p, q, c) for each output element.
template <typename Body>
void for_each_element(const Shape& y, const Body& body) {
  for (int64_t n = 0; n < y.n; ++n)
    for (int64_t p = 0; p < y.h; ++p)
      for (int64_t q = 0; q < y.w; ++q)
        for (int64_t c = 0; c < y.c; ++c) body(n, p, q, c);
}

// What is pooled, and its shape.
std::vector<double> pooled_values(const ReferenceCall& call, Shape& shape) {
  const auto& a = call.node.as<PoolAttributes>();
  shape = call.input_shape(0);
  if (!a.computes()) return *call.inputs[0];
  std::vector<double> values;
  for_each_element(call, [&](int64_t n, int64_t h, int64_t w, int64_t c, const std::vector<double>& value) {
    values.push_back(value[0]);
    shape = {n + 1, h + 1, w + 1, c + 1};  // the last one's place says how large it is
  });
  return values;
}

void reference_max(const ReferenceCall& call) {
  const auto& a = call.node.as<PoolAttributes>();
  Shape xs;
  const std::vector<double> x = pooled_values(call, xs);
  const Shape& ys = call.output_shape(0);
  const PoolAxis h = pool_height(a, xs, ys), w = pool_width(a, xs, ys);
  auto* index = wanted_output(call, 1);
  for_each_element(ys, [&](int64_t n, int64_t p, int64_t q, int64_t c) {
    double best = -std::numeric_limits<double>::infinity();
    int64_t where = 0;
    bool any = false;
    for (int64_t r = 0; r < a.kernel_h; ++r)
      for (int64_t s = 0; s < a.kernel_w; ++s) {
        const int64_t ih = h.start(p) + r * a.dilation_h, iw = w.start(q) + s * a.dilation_w;
        if (ih < 0 || ih >= xs.h || iw < 0 || iw >= xs.w) continue;
        const double v = x[index_of(xs, n, ih, iw, c)];
        if (any && !(v > best) && !std::isnan(v)) continue;
        best = v;
        where = r * a.kernel_w + s;
        any = true;
      }
    (*call.outputs[0])[index_of(ys, n, p, q, c)] = best;
    if (index) (*index)[index_of(ys, n, p, q, c)] = double(where);
  });
}

void reference_max_backward(const ReferenceCall& call) {
  const auto& a = call.node.as<PoolAttributes>();
  const Shape &ys = call.input_shape(0), &xs = call.output_shape(0);
  const PoolAxis h = pool_height(a, xs, ys), w = pool_width(a, xs, ys);
  auto& dx = *call.outputs[0];
  dx.assign(dx.size(), 0.0);
  for_each_element(ys, [&](int64_t n, int64_t p, int64_t q, int64_t c) {
    const size_t e = index_of(ys, n, p, q, c);
    const auto where = int64_t((*call.inputs[1])[e]);
    const int64_t ih = h.start(p) + where / a.kernel_w * a.dilation_h;
    const int64_t iw = w.start(q) + where % a.kernel_w * a.dilation_w;
    if (ih >= 0 && ih < xs.h && iw >= 0 && iw < xs.w) dx[index_of(xs, n, ih, iw, c)] += (*call.inputs[0])[e];
  });
}

// Calls body(input index, output index, 1 / divisor) for each term of an average.
template <typename Body>
void for_each_term(const PoolAttributes& a, const Shape& xs, const Shape& ys, const Body& body) {
  const PoolAxis h = pool_height(a, xs, ys), w = pool_width(a, xs, ys);
  for_each_element(ys, [&](int64_t n, int64_t p, int64_t q, int64_t c) {
    const double divisor = double(h.counted(p, a.count_include_pad) * w.counted(q, a.count_include_pad));
    for (int64_t r = h.first(p); r < h.last(p); ++r)
      for (int64_t s = w.first(q); s < w.last(q); ++s)
        body(index_of(xs, n, h.start(p) + r * a.dilation_h, w.start(q) + s * a.dilation_w, c),
             index_of(ys, n, p, q, c), 1 / divisor);
  });
}

void reference_average(const ReferenceCall& call) {
  auto& y = *call.outputs[0];
  y.assign(y.size(), 0.0);
  for_each_term(call.node.as<PoolAttributes>(), call.input_shape(0), call.output_shape(0),
                [&](size_t ix, size_t iy, double share) { y[iy] += (*call.inputs[0])[ix] * share; });
}

void reference_average_backward(const ReferenceCall& call) {
  auto& dx = *call.outputs[0];
  dx.assign(dx.size(), 0.0);
  for_each_term(call.node.as<PoolAttributes>(), call.output_shape(0), call.input_shape(0),
                [&](size_t ix, size_t iy, double share) { dx[ix] += (*call.inputs[0])[iy] * share; });
}

void gradient_max(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  require(!node.as<PoolAttributes>().computes(), "{}: only passes after autodiff compute in a pool",
          node.name);
  context.set_gradient(0, emit(context.builder(), Op::max_pool_backward, node.name,
                               {dy, node.outputs[1], node.inputs[0]}, node.attributes)[0]);
}

void gradient_average(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  context.set_gradient(0, emit(context.builder(), Op::average_pool_backward, node.name, {dy, node.inputs[0]},
                               node.attributes)[0]);
}

}  // namespace

std::string PoolAttributes::text() const {
  return fmt::format("kernel={}x{} stride={}x{} dilation={}x{} pads={},{},{},{}{}{}{}", kernel_h, kernel_w,
                     stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, pad_bottom, pad_right,
                     ceil_mode ? " ceil" : "", count_include_pad ? " count_include_pad" : "",
                     computes() ? fmt::format(" of {}", expression.text()) : "");
}

const OpDefinition& max_pool_definition() {
  static const OpDefinition definition{"max_pool", infer_max, reference_max, gradient_max};
  return definition;
}

const OpDefinition& max_pool_backward_definition() {
  static const OpDefinition definition{"max_pool_backward", infer_max_backward, reference_max_backward,
                                       nullptr};
  return definition;
}

const OpDefinition& average_pool_definition() {
  static const OpDefinition definition{"average_pool", infer_average, reference_average, gradient_average};
  return definition;
}

const OpDefinition& average_pool_backward_definition() {
  static const OpDefinition definition{"average_pool_backward", infer_average_backward,
                                       reference_average_backward, nullptr};
  return definition;
}

}  // namespace ren
