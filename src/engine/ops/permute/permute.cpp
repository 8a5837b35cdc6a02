// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/permute/permute.h"

#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"
#include "engine/ops/support/reference.h"

namespace ren {
namespace {

std::string text_of(const PermuteAttributes& a) {
  std::string out = "split=";
  for (size_t i = 0; i < a.split.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", a.split[i]);
  out += " order=";
  for (size_t i = 0; i < a.order.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", a.order[i]);
  return out + fmt::format(" h={} w={} c={}", a.h, a.w, a.c);
}

std::vector<TensorType> infer(const Node& node, std::span<const TensorType> inputs) {
  check_arity(node, inputs, 1, 1);
  const auto& a = node.as<PermuteAttributes>();
  const Shape& x = inputs[0].shape;
  int64_t elements = 1;
  for (const int64_t factor : a.split) elements *= factor;
  if (elements != x.h * x.w * x.c || elements != a.h * a.w * a.c)
    fail(StatusCode::invalid_model, "{} cannot be split and permuted as {}", to_string(x), text_of(a));
  std::vector<bool> seen(a.split.size(), false);
  for (const int axis : a.order)
    if (axis >= 0 && size_t(axis) < seen.size()) seen[size_t(axis)] = true;
  if (a.order.size() != a.split.size() || std::find(seen.begin(), seen.end(), false) != seen.end())
    fail(StatusCode::invalid_model, "the order is no permutation: {}", text_of(a));
  return {{{x.n, a.h, a.w, a.c}, inputs[0].dtype}};
}

void reference(const ReferenceCall& call) {
  const auto& a = call.node.as<PermuteAttributes>();
  const size_t axes = a.split.size();
  std::vector<int64_t> strides(axes, 1), position(axes, 0);
  for (size_t i = axes - 1; i-- > 0;) strides[i] = strides[i + 1] * a.split[i + 1];
  const int64_t sample = a.h * a.w * a.c;
  for (size_t e = 0; e < call.outputs[0]->size(); ++e) {
    int64_t rest = int64_t(e) % sample, source = int64_t(e) / sample * sample;
    for (size_t i = axes; i-- > 0;) {  // the last factor of the output runs fastest
      const auto axis = size_t(a.order[i]);
      source += rest % a.split[axis] * strides[axis];
      rest /= a.split[axis];
    }
    (*call.outputs[0])[e] = (*call.inputs[0])[size_t(source)];
  }
}

void gradient(GradientContext& context) {
  const TensorId dy = context.output_gradient(0);
  if (dy == kNoTensor || !is_wanted(context, 0)) return;
  const Node& node = context.node();
  const auto& a = node.as<PermuteAttributes>();
  const Shape& x = context.graph().at(node.inputs[0]).shape;
  auto inverse = std::make_shared<PermuteAttributes>();
  inverse->split.resize(a.split.size());
  inverse->order.resize(a.order.size());
  for (size_t i = 0; i < a.order.size(); ++i) {
    inverse->split[i] = a.split[size_t(a.order[i])];
    inverse->order[size_t(a.order[i])] = int(i);
  }
  inverse->h = x.h;
  inverse->w = x.w;
  inverse->c = x.c;
  context.set_gradient(0, emit(context.builder(), Op::permute, node.name, {dy}, std::move(inverse))[0]);
}

}  // namespace

std::string PermuteAttributes::text() const { return text_of(*this); }

const OpDefinition& permute_definition() {
  static const OpDefinition definition{"permute", infer, reference, gradient};
  return definition;
}

}  // namespace ren
