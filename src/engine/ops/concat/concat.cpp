// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/concat/concat.h"

#include "engine/ops/slice/slice.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {

const char* name_of(Axis axis) {
  switch (axis) {
    case Axis::n:
      return "n";
    case Axis::h:
      return "h";
    case Axis::w:
      return "w";
    case Axis::c:
      return "c";
  }
  return "?";
}

int64_t extent(const Shape& shape, Axis axis) {
  switch (axis) {
    case Axis::n:
      return shape.n;
    case Axis::h:
      return shape.h;
    case Axis::w:
      return shape.w;
    case Axis::c:
      return shape.c;
  }
  return 0;
}

void set_extent(Shape& shape, Axis axis, int64_t value) {
  switch (axis) {
    case Axis::n:
      shape.n = value;
      break;
    case Axis::h:
      shape.h = value;
      break;
    case Axis::w:
      shape.w = value;
      break;
    case Axis::c:
      shape.c = value;
      break;
  }
}

namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, inputs.size(), inputs.size());
  if (inputs.empty()) fail(StatusCode::invalid_model, "nothing to concatenate");
  const Axis axis = node.as<ConcatAttributes>().axis;
  if (axis == Axis::n) fail(StatusCode::unsupported, "concatenation along the batch");
  TensorType out = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    Shape like = inputs[i].shape;
    set_extent(like, axis, extent(inputs[0].shape, axis));
    if (like != inputs[0].shape || inputs[i].dtype != out.dtype)
      fail(StatusCode::invalid_model, "{} {} and {} {} cannot be joined along {}", name_of(out.dtype),
           to_string(inputs[0].shape), name_of(inputs[i].dtype), to_string(inputs[i].shape), name_of(axis));
    set_extent(out.shape, axis, extent(out.shape, axis) + extent(inputs[i].shape, axis));
  }
  return {out};
}

void reference(const ReferenceCall& call) {
  const Axis axis = call.node.as<ConcatAttributes>().axis;
  const Shape& out = call.output_shape(0);
  int64_t offset = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Shape& s = call.input_shape(i);
    const int64_t dh = axis == Axis::h ? offset : 0, dw = axis == Axis::w ? offset : 0;
    const int64_t dc = axis == Axis::c ? offset : 0;
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t h = 0; h < s.h; ++h)
        for (int64_t w = 0; w < s.w; ++w)
          for (int64_t c = 0; c < s.c; ++c)
            (*call.outputs[0])[index_of(out, n, h + dh, w + dw, c + dc)] =
                (*call.inputs[i])[index_of(s, n, h, w, c)];
    offset += extent(s, axis);
  }
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  const Node& node = context.node();
  const Axis axis = node.as<ConcatAttributes>().axis;
  int64_t offset = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int64_t count = extent(context.graph().at(node.inputs[i]).shape, axis);
    if (is_wanted(context, i))
      context.set_gradient(i, emit(context.builder(), Op::slice, node.name, {dy},
                                   std::make_shared<SliceAttributes>(axis, offset, count))[0]);
    offset += count;
  }
}

}  // namespace

std::string ConcatAttributes::text() const { return fmt::format("axis={}", name_of(axis)); }

const OpDefinition& concat_definition() {
  static const OpDefinition definition{"concat", infer, reference, gradient};
  return definition;
}

}  // namespace ren
