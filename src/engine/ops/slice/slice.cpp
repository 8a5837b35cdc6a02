// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/slice/slice.h"

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

Shape sliced(const SliceAttributes& a, const Shape& x) {
  const int64_t size = extent(x, a.axis);
  if (a.axis == Axis::n) fail(StatusCode::unsupported, "a slice of the batch");
  if (a.step < 1)
    fail(StatusCode::unsupported, "a slice with step {}; steps of at least 1 are supported", a.step);
  if (a.begin < 0 || a.count < 1 || a.begin + (a.count - 1) * a.step >= size)
    fail(StatusCode::invalid_model, "{} elements from {} with step {} reach beyond axis {} of {}", a.count,
         a.begin, a.step, name_of(a.axis), to_string(x));
  Shape y = x;
  set_extent(y, a.axis, a.count);
  return y;
}

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  return {{sliced(node.as<SliceAttributes>(), inputs[0].shape), inputs[0].dtype}};
}

std::vector<TensorType> infer_backward(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 2);
  check_same_shape("the output gradient", inputs[0].shape,
                   sliced(node.as<SliceAttributes>(), inputs[1].shape));
  return {{inputs[1].shape, inputs[0].dtype}};
}

// Calls body(index in x, index in y) for each element taken.
template <typename Body>
void for_each_taken(const SliceAttributes& a, const Shape& x, const Shape& y, const Body& body) {
  const auto source = [&](Axis axis, int64_t i) { return a.axis == axis ? a.begin + i * a.step : i; };
  for (int64_t n = 0; n < y.n; ++n)
    for (int64_t h = 0; h < y.h; ++h)
      for (int64_t w = 0; w < y.w; ++w)
        for (int64_t c = 0; c < y.c; ++c)
          body(index_of(x, n, source(Axis::h, h), source(Axis::w, w), source(Axis::c, c)),
               index_of(y, n, h, w, c));
}

void reference(const ReferenceCall& call) {
  for_each_taken(call.node.as<SliceAttributes>(), call.input_shape(0), call.output_shape(0),
                 [&](size_t x, size_t y) { (*call.outputs[0])[y] = (*call.inputs[0])[x]; });
}

void reference_backward(const ReferenceCall& call) {
  auto& dx = *call.outputs[0];
  dx.assign(dx.size(), 0.0);
  for_each_taken(call.node.as<SliceAttributes>(), call.output_shape(0), call.input_shape(0),
                 [&](size_t x, size_t y) { dx[x] = (*call.inputs[0])[y]; });
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  context.set_gradient(
      0, emit(context.builder(), Op::slice_backward, node.name, {dy, node.inputs[0]}, node.attributes)[0]);
}

}  // namespace

std::string SliceAttributes::text() const {
  return fmt::format("axis={} begin={} count={} step={}", name_of(axis), begin, count, step);
}

const OpDefinition& slice_definition() {
  static const OpDefinition definition{"slice", infer, reference, gradient};
  return definition;
}

const OpDefinition& slice_backward_definition() {
  static const OpDefinition definition{"slice_backward", infer_backward, reference_backward, nullptr};
  return definition;
}

}  // namespace ren
