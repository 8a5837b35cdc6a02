// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/conv/conv.h"

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

int64_t output_extent(const char* axis, int64_t size, int64_t kernel, int64_t before, int64_t after,
                      int64_t stride, int64_t dilation) {
  const int64_t reach = (kernel - 1) * dilation + 1, padded = size + before + after;
  if (reach > padded)
    fail(StatusCode::invalid_model,
         "a kernel that reaches over {} does not fit into {} {} with padding {}+{}", reach, axis, size,
         before, after);
  return (padded - reach) / stride + 1;
}

// The shape of conv's output; checks everything that x, w and the attributes must agree on.
Shape output_shape(const ConvAttributes& a, const Shape& x, const Shape& w) {
  if (a.stride_h < 1 || a.stride_w < 1 || a.dilation_h < 1 || a.dilation_w < 1 || a.groups < 1)
    fail(StatusCode::invalid_model, "strides {}x{}, dilations {}x{} and groups {} must be at least 1",
         a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, a.groups);
  if (a.pad_top < 0 || a.pad_left < 0 || a.pad_bottom < 0 || a.pad_right < 0)
    fail(StatusCode::unsupported, "negative padding {},{},{},{}", a.pad_top, a.pad_left, a.pad_bottom,
         a.pad_right);
  if (x.c % a.groups != 0 || w.n % a.groups != 0)
    fail(StatusCode::invalid_model, "{} groups divide neither or only one of {} input and {} output channels",
         a.groups, x.c, w.n);
  if (w.c != (x.c - a.padding_channels) / a.groups || (a.padding_channels != 0 && a.groups != 1))
    fail(StatusCode::invalid_model,
         "weights {} (KRSC) take {} channels a group, but the input has {} in {} groups", to_string(w), w.c,
         x.c, a.groups);
  return {x.n, output_extent("height", x.h, w.h, a.pad_top, a.pad_bottom, a.stride_h, a.dilation_h),
          output_extent("width", x.w, w.w, a.pad_left, a.pad_right, a.stride_w, a.dilation_w), w.n};
}

// The smallest x of which the convolution makes y.
Shape smallest_input(const ConvAttributes& a, const Shape& y, const Shape& w) {
  const auto extent = [](int64_t size, int64_t kernel, int64_t padding, int64_t stride, int64_t dilation) {
    return (size - 1) * stride + (kernel - 1) * dilation + 1 - padding;
  };
  const Shape x{y.n, extent(y.h, w.h, a.pad_top + a.pad_bottom, a.stride_h, a.dilation_h),
                extent(y.w, w.w, a.pad_left + a.pad_right, a.stride_w, a.dilation_w),
                w.c * a.groups + a.padding_channels};
  if (x.h < 1 || x.w < 1)
    fail(StatusCode::invalid_model, "an output of {} takes no more than padding", to_string(y));
  return x;
}

std::vector<TensorType> infer_forward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 3);
  check_float("the input", inputs[0]);
  check_float("the weight", inputs[1]);
  const Shape y = output_shape(node.as<ConvAttributes>(), inputs[0].shape, inputs[1].shape);
  if (has_input(node, 2)) {
    check_float("the bias", inputs[2]);
    check_channel_vector("the bias", inputs[2], y.c);
  }
  std::vector<TensorType> types{{y, inputs[0].dtype}};
  if (node.as<ConvAttributes>().sums) types.resize(3, {{1, 1, 1, y.c}, DType::f32});
  return types;
}

std::vector<TensorType> infer_backward_data(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 3);
  check_float("the output gradient", inputs[0]);
  check_float("the weight", inputs[1]);
  const auto& a = node.as<ConvAttributes>();
  const TensorType x = has_input(node, 2)
                           ? inputs[2]
                           : TensorType{smallest_input(a, inputs[0].shape, inputs[1].shape), inputs[0].dtype};
  check_same_shape("the output gradient", inputs[0].shape, output_shape(a, x.shape, inputs[1].shape));
  return {x};
}

std::vector<TensorType> infer_backward_weights(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 3, 3);
  check_float("the input", inputs[0]);
  check_float("the output gradient", inputs[1]);
  check_same_shape("the output gradient", inputs[1].shape,
                   output_shape(node.as<ConvAttributes>(), inputs[0].shape, inputs[2].shape));
  return {{inputs[2].shape, DType::f32}};
}

// Calls body(index of x, index of w, index of y) for every product of the convolution.
template <typename Body>
void for_each_product(const ConvAttributes& a, const Shape& x, const Shape& w, const Shape& y,
                      const Body& body) {
  const int64_t per_group = w.n / a.groups;
  for (int64_t n = 0; n < y.n; ++n)
    for (int64_t p = 0; p < y.h; ++p)
      for (int64_t q = 0; q < y.w; ++q)
        for (int64_t k = 0; k < y.c; ++k)
          for (int64_t r = 0; r < w.h; ++r)
            for (int64_t s = 0; s < w.w; ++s) {
              const int64_t ih = p * a.stride_h - a.pad_top + r * a.dilation_h;
              const int64_t iw = q * a.stride_w - a.pad_left + s * a.dilation_w;
              if (ih < 0 || ih >= x.h || iw < 0 || iw >= x.w) continue;
              for (int64_t c = 0; c < w.c; ++c)
                body(index_of(x, n, ih, iw, k / per_group * w.c + c), index_of(w, k, r, s, c),
                     index_of(y, n, p, q, k));
            }
}

void reference_forward(const ReferenceCall& call) {
  const auto &x = *call.inputs[0], &w = *call.inputs[1];
  auto& y = *call.outputs[0];
  const Shape& shape = call.output_shape(0);
  const auto* bias = optional_input(call, 2);
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias ? (*bias)[i % size_t(shape.c)] : 0.0;
  for_each_product(call.node.as<ConvAttributes>(), call.input_shape(0), call.input_shape(1), shape,
                   [&](size_t ix, size_t iw, size_t iy) { y[iy] += x[ix] * w[iw]; });
  if (!call.node.as<ConvAttributes>().sums) return;
  for (const size_t k : {1, 2}) call.outputs[k]->assign(size_t(shape.c), 0.0);
  for (size_t i = 0; i < y.size(); ++i) {
    (*call.outputs[1])[i % size_t(shape.c)] += y[i];
    (*call.outputs[2])[i % size_t(shape.c)] += y[i] * y[i];
  }
}

void reference_backward_data(const ReferenceCall& call) {
  const auto &dy = *call.inputs[0], &w = *call.inputs[1];
  auto& dx = *call.outputs[0];
  dx.assign(dx.size(), 0.0);
  for_each_product(call.node.as<ConvAttributes>(), call.output_shape(0), call.input_shape(1),
                   call.input_shape(0), [&](size_t ix, size_t iw, size_t iy) { dx[ix] += dy[iy] * w[iw]; });
}

void reference_backward_weights(const ReferenceCall& call) {
  const auto &x = *call.inputs[0], &dy = *call.inputs[1];
  auto& dw = *call.outputs[0];
  dw.assign(dw.size(), 0.0);
  for_each_product(call.node.as<ConvAttributes>(), call.input_shape(0), call.output_shape(0),
                   call.input_shape(1), [&](size_t ix, size_t iw, size_t iy) { dw[iw] += dy[iy] * x[ix]; });
}

void gradient_forward(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  const Node& node = context.node();
  const TensorId x = node.inputs[0], w = node.inputs[1];
  if (is_wanted(context, 1))
    context.set_gradient(
        1, emit(context.builder(), Op::conv_backward_weights, node.name, {x, dy, w}, node.attributes)[0]);
  if (is_wanted(context, 2)) context.set_gradient(2, emit_bias_gradient(context, dy));
  if (is_wanted(context, 0))
    context.set_gradient(
        0, emit(context.builder(), Op::conv_backward_data, node.name, {dy, w, x}, node.attributes)[0]);
}

// Linear in dy and in w: as a forward op it is the transposed convolution.
void gradient_backward_data(GradientContext& context) {
  const TensorId g = context.output_gradient(0);
  if (g == kNoTensor) return;
  const Node& node = context.node();
  const TensorId dy = node.inputs[0], w = node.inputs[1];
  if (is_wanted(context, 1))
    context.set_gradient(
        1, emit(context.builder(), Op::conv_backward_weights, node.name, {g, dy, w}, node.attributes)[0]);
  if (is_wanted(context, 0))
    context.set_gradient(0, emit(context.builder(), Op::conv, node.name, {g, w}, node.attributes)[0]);
}

}  // namespace

std::string ConvAttributes::text() const {
  return fmt::format("stride={}x{} pads={},{},{},{} dilation={}x{} groups={}{}{}", stride_h, stride_w,
                     pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w, groups,
                     padding_channels == 0 ? "" : fmt::format(" padding={}", padding_channels),
                     sums ? " sums" : "");
}

const OpDefinition& conv_definition() {
  static const OpDefinition definition{"conv", infer_forward, reference_forward, gradient_forward};
  return definition;
}

const OpDefinition& conv_backward_data_definition() {
  static const OpDefinition definition{"conv_backward_data", infer_backward_data, reference_backward_data,
                                       gradient_backward_data};
  return definition;
}

const OpDefinition& conv_backward_weights_definition() {
  static const OpDefinition definition{"conv_backward_weights", infer_backward_weights,
                                       reference_backward_weights, nullptr};
  return definition;
}

}  // namespace ren
