// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pad/pad.h"

#include "engine/ops/pad/source.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

int64_t padded_extent(const PadAttributes& a, const char* axis, int64_t size, int64_t before, int64_t after) {
  const int64_t padded = size + before + after;
  if (padded < 1)
    fail(StatusCode::invalid_model, "padding {} and {} leaves nothing of {} {}", before, after, axis, size);
  if (a.mode != PadMode::constant && (before < 0 || after < 0))
    fail(StatusCode::unsupported, "negative padding {} and {} of {} in a mode other than constant", before,
         after, axis);
  // Mirroring needs other elements to mirror.
  if (a.mode == PadMode::reflect && (before >= size || after >= size))
    fail(StatusCode::invalid_model, "reflected padding {} and {} must be smaller than {} {}", before, after,
         axis, size);
  return padded;
}

Shape padded(const PadAttributes& a, const Shape& x) {
  return {x.n, padded_extent(a, "height", x.h, a.top, a.bottom),
          padded_extent(a, "width", x.w, a.left, a.right),
          padded_extent(a, "channels", x.c, a.c_before, a.c_after)};
}

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  check_float("the input", inputs[0]);
  return {{padded(node.as<PadAttributes>(), inputs[0].shape), inputs[0].dtype}};
}

std::vector<TensorType> infer_backward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 2);
  check_float("the output gradient", inputs[0]);
  check_same_shape("the output gradient", inputs[0].shape, padded(node.as<PadAttributes>(), inputs[1].shape));
  return {{inputs[1].shape, inputs[0].dtype}};
}

// Calls body(index in x or -1, index in y) for each element of y.
template <typename Body>
void for_each_element(const PadAttributes& a, const Shape& x, const Shape& y, const Body& body) {
  for (int64_t n = 0; n < y.n; ++n)
    for (int64_t h = 0; h < y.h; ++h)
      for (int64_t w = 0; w < y.w; ++w)
        for (int64_t c = 0; c < y.c; ++c) {
          const int64_t sh = pad_source(a.mode, h, a.top, x.h), sw = pad_source(a.mode, w, a.left, x.w);
          const int64_t sc = pad_source(a.mode, c, a.c_before, x.c);
          const bool inside = sh >= 0 && sw >= 0 && sc >= 0;
          body(inside ? int64_t(index_of(x, n, sh, sw, sc)) : -1, index_of(y, n, h, w, c));
        }
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<PadAttributes>();
  for_each_element(a, call.input_shape(0), call.output_shape(0), [&](int64_t x, size_t y) {
    (*call.outputs[0])[y] = x < 0 ? a.value : (*call.inputs[0])[size_t(x)];
  });
}

void reference_backward(const ReferenceCall& call) {
  auto& dx = *call.outputs[0];
  dx.assign(dx.size(), 0.0);
  for_each_element(call.node.as<PadAttributes>(), call.output_shape(0), call.input_shape(0),
                   [&](int64_t x, size_t y) {
                     if (x >= 0) dx[size_t(x)] += (*call.inputs[0])[y];
                   });
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  context.set_gradient(
      0, emit(context.builder(), Op::pad_backward, node.name, {dy, node.inputs[0]}, node.attributes)[0]);
}

}  // namespace

std::string PadAttributes::text() const {
  const char* const modes[] = {"constant", "reflect", "edge"};
  return fmt::format("{} pads={},{},{},{} channels={},{} value={}", modes[int(mode)], top, left, bottom,
                     right, c_before, c_after, value);
}

const OpDefinition& pad_definition() {
  static const OpDefinition definition{"pad", infer, reference, gradient};
  return definition;
}

const OpDefinition& pad_backward_definition() {
  static const OpDefinition definition{"pad_backward", infer_backward, reference_backward, nullptr};
  return definition;
}

}  // namespace ren
