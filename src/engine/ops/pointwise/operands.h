// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/op.h"
#include "engine/ops/pointwise/expression_attributes.h"

namespace ren {

// What pointwise and reduce share: operands that broadcast, the random state behind them, and
// the gradients of operands.

Shape broadcast_shapes(std::span<const Shape> shapes);  // throws invalid_model when they don't fit

// The same where some operands are spread or windows. Those spread give no extent of H and W: others must.
Shape full_shape(std::span<const Shape> operands, const ExpressionAttributes& attributes);

// The full shape of a node's operands. Checks their number and types, and that the random state
// follows them just when the expression draws numbers.
Shape infer_operands(const Node& node, std::span<const TensorType> inputs);

// Calls body(n, h, w, c, values of the expression's outputs) for every element of the full shape,
// in order.
template <typename Body>
void for_each_element(const ReferenceCall& call, Body body);

// Emits the nodes for the gradients of several operands at once: outputs[i] of `derivative`, an
// expression over `operands`, is the gradient of the context's input wanted[i] at one element of
// `full`. Operands of that shape share one pointwise node; those that broadcast are summed over
// the dimensions where they repeat, straight from the expression. `random_state` is kNoTensor
// when nothing is drawn.
void emit_operand_gradients(GradientContext& context, const Expression& derivative,
                            std::span<const int> wanted, const std::vector<TensorId>& operands,
                            const Shape& full, TensorId random_state);

// ---- Implementation of the template --------------------------------------------------------

inline RandomPoint random_point(const std::vector<double>& state) {
  const auto word = [&](size_t i) { return uint32_t(int64_t(state[i])); };
  return {{word(0), word(1)}, word(2), word(3), 0};
}

template <typename Body>
void for_each_element(const ReferenceCall& call, Body body) {
  const auto& attributes = call.node.as<ExpressionAttributes>();
  const Expression& expression = attributes.expression;
  const size_t count = size_t(expression.inputs);
  std::vector<Shape> shapes;
  for (size_t i = 0; i < count; ++i) shapes.push_back(call.input_shape(i));
  const Shape full = full_shape(shapes, attributes);
  const RandomPoint state = expression.uses_random() ? random_point(*call.inputs.at(count)) : RandomPoint{};
  std::vector<double> inputs(count), outputs(expression.outputs.size());
  for (int64_t n = 0; n < full.n; ++n)
    for (int64_t h = 0; h < full.h; ++h)
      for (int64_t w = 0; w < full.w; ++w)
        for (int64_t c = 0; c < full.c; ++c) {
          for (size_t i = 0; i < count; ++i) {
            const Shape& s = shapes[i];  // a dimension of 1 repeats: index modulo extent
            const OperandView view = attributes.view(i);
            const int64_t y = h / view.h % s.h, x = w / view.w % s.w;
            const int64_t channel = view.is_window() ? view.first + c % view.count : c % s.c;
            inputs[i] = h % view.h != 0 || w % view.w != 0
                            ? 0.0
                            : (*call.inputs[i])[size_t((((n % s.n) * s.h + y) * s.w + x) * s.c + channel)];
          }
          RandomPoint point = state;
          point.sample += uint64_t(n);
          point.element = uint64_t((h * full.w + w) * full.c + c);
          evaluate(expression, inputs, point, outputs);
          body(n, h, w, c, std::as_const(outputs));
        }
}

// Throws unsupported when the node reads or writes bits (b1) or reads an operand spread or by a window, for
// which CPUs have no kernels.
void refuse_forms_of_gpus(const Graph& graph, const Node& node);

}  // namespace ren
