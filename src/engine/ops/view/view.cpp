// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/view/view.h"

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"

namespace ren {
namespace {

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  const auto& a = node.as<ViewAttributes>();
  const int64_t sample = a.h * a.w * a.c, elements = inputs[0].shape.elements();
  if (a.h < 1 || a.w < 1 || a.c < 1 || elements % sample != 0)
    fail(StatusCode::invalid_model, "{} ({} elements) cannot be seen as samples of [{},{},{}]",
         to_string(inputs[0].shape), elements, a.h, a.w, a.c);
  return {{{elements / sample, a.h, a.w, a.c}, inputs[0].dtype}};
}

void reference(const ReferenceCall& call) { *call.outputs[0] = *call.inputs[0]; }

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Shape& x = context.graph().at(context.node().inputs[0]).shape;
  context.set_gradient(0, emit(context.builder(), Op::view, context.node().name, {dy},
                               std::make_shared<ViewAttributes>(x.h, x.w, x.c))[0]);
}

}  // namespace

std::string ViewAttributes::text() const { return fmt::format("h={} w={} c={}", h, w, c); }

const OpDefinition& view_definition() {
  static const OpDefinition definition{"view", infer, reference, gradient};
  return definition;
}

}  // namespace ren
