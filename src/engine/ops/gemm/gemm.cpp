// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/gemm/gemm.h"

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {

GemmExtents gemm_extents(const GemmAttributes& a, const Shape& left, const Shape& right) {
  return {a.transpose_a ? left.c : left.pixels(), a.transpose_b ? right.pixels() : right.c,
          a.transpose_a ? left.pixels() : left.c};
}

namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 2, 3);
  check_float("the left operand", inputs[0]);
  check_float("the right operand", inputs[1]);
  const auto& a = node.as<GemmAttributes>();
  const Shape &left = inputs[0].shape, &right = inputs[1].shape;
  const GemmExtents e = gemm_extents(a, left, right);
  const int64_t right_inner = a.transpose_b ? right.c : right.pixels();
  if (e.inner != right_inner)
    fail(StatusCode::invalid_model, "{}{} and {}{} cannot be multiplied: inner extents {} and {}",
         to_string(left), a.transpose_a ? " transposed" : "", to_string(right),
         a.transpose_b ? " transposed" : "", e.inner, right_inner);
  if (has_input(node, 2)) {
    check_float("the bias", inputs[2]);
    check_channel_vector("the bias", inputs[2], e.columns);
  }
  Shape out = a.transpose_a ? Shape{e.rows, 1, 1, e.columns} : Shape{left.n, left.h, left.w, e.columns};
  if (a.has_out) {
    if (a.out.pixels() != e.rows || a.out.c != e.columns)
      fail(StatusCode::invalid_model, "a product of {} rows and {} columns cannot have shape {}", e.rows,
           e.columns, to_string(a.out));
    out = a.out;
  }
  return {{out, a.out_follows_a ? inputs[0].dtype : a.out_type}};
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<GemmAttributes>();
  const Shape &left = call.input_shape(0), &right = call.input_shape(1);
  const GemmExtents e = gemm_extents(a, left, right);
  const auto &x = *call.inputs[0], &w = *call.inputs[1];
  const auto* bias = optional_input(call, 2);
  for (int64_t i = 0; i < e.rows; ++i)
    for (int64_t j = 0; j < e.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < e.inner; ++k)
        sum += x[size_t(a.transpose_a ? k * left.c + i : i * left.c + k)] *
               w[size_t(a.transpose_b ? j * right.c + k : k * right.c + j)];
      (*call.outputs[0])[size_t(i * e.columns + j)] =
          double(a.alpha) * sum + (bias ? (*bias)[size_t(j)] : 0.0);
    }
}

// One factor of a product: a matrix and whether it is read transposed.
struct Factor {
  TensorId matrix;
  bool transposed;
};

TensorId emit_product(GradientContext& context, Factor left, Factor right, TensorId like) {
  auto attributes = std::make_shared<GemmAttributes>();
  attributes->transpose_a = left.transposed;
  attributes->transpose_b = right.transposed;
  attributes->alpha = context.node().as<GemmAttributes>().alpha;
  attributes->has_out = true;
  attributes->out = context.graph().at(like).shape;
  attributes->out_follows_a = !is_parameter(context.graph(), like);  // a parameter's gradient is FP32
  return emit(context.builder(), Op::gemm, context.node().name, {left.matrix, right.matrix},
              std::move(attributes))[0];
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor) return;
  const auto& a = context.node().as<GemmAttributes>();
  const TensorId left = context.node().inputs[0], right = context.node().inputs[1];
  if (is_wanted(context, 1)) {
    // d op(b) = op(a)' dy
    const TensorId g = a.transpose_b ? emit_product(context, {dy, true}, {left, a.transpose_a}, right)
                                     : emit_product(context, {left, !a.transpose_a}, {dy, false}, right);
    context.set_gradient(1, g);
  }
  if (is_wanted(context, 2)) context.set_gradient(2, emit_bias_gradient(context, dy));
  if (is_wanted(context, 0)) {
    // d op(a) = dy op(b)'
    const TensorId g = a.transpose_a ? emit_product(context, {right, a.transpose_b}, {dy, true}, left)
                                     : emit_product(context, {dy, false}, {right, !a.transpose_b}, left);
    context.set_gradient(0, g);
  }
}

}  // namespace

std::string GemmAttributes::text() const {
  std::string out = fmt::format("alpha={}{}{}", alpha, transpose_a ? " transpose_a" : "",
                                transpose_b ? " transpose_b" : "");
  if (has_out) out += " out=" + to_string(this->out);
  if (!out_follows_a) out += fmt::format(" type={}", name_of(out_type));
  return out;
}

const OpDefinition& gemm_definition() {
  static const OpDefinition definition{"gemm", infer, reference, gradient};
  return definition;
}

}  // namespace ren
