// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pointwise/operands.h"

#include <map>

#include "engine/base/status.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/support/gradients.h"
#include "engine/ops/support/infer.h"

namespace ren {
namespace {

int64_t broadcast_extent(int64_t a, int64_t b, const Shape& left, const Shape& right) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  fail(StatusCode::invalid_model, "shapes {} and {} don't broadcast", to_string(left), to_string(right));
}

// Which dimensions an operand doesn't repeat in.
struct Mask {
  bool n, h, w, c;
  auto operator<=>(const Mask&) const = default;
};

Mask kept_by(const Shape& operand, const Shape& full, bool per_sample) {
  const auto keeps = [](int64_t a, int64_t b) { return a == b && b != 1; };
  return {(per_sample && operand.n == full.n) || keeps(operand.n, full.n), keeps(operand.h, full.h),
          keeps(operand.w, full.w), keeps(operand.c, full.c)};
}

class OperandGradients {
 public:
  OperandGradients(GradientContext& context, const Expression& derivative, std::span<const int> wanted,
                   const std::vector<TensorId>& operands, const Shape& full, TensorId random_state)
      : context_(context),
        derivative_(derivative),
        wanted_(wanted),
        operands_(operands),
        full_(full),
        random_state_(random_state) {}

  void emit_all() {
    std::vector<int> same_shape;
    std::map<Mask, std::vector<int>> narrow;  // by what stays: one reduction for each
    for (int i = 0; i < int(wanted_.size()); ++i) {
      if (is_constant(derivative_, size_t(i), 0) || passes_through(i)) continue;
      const Shape& shape = operand(i).shape;
      if (shape == full_ && !repeats(i))
        same_shape.push_back(i);
      else
        narrow[kept_by(shape, full_, is_per_sample(i))].push_back(i);
    }
    if (!same_shape.empty()) emit_same_shape(same_shape);
    for (const auto& [mask, members] : narrow) emit_sums(mask, members);
  }

 private:
  TensorId operand_id(int i) const { return context_.node().inputs[size_t(wanted_[size_t(i)])]; }
  const Tensor& operand(int i) const { return context_.graph().at(operand_id(i)); }
  DType gradient_type(int i) const {
    return is_parameter(context_.graph(), operand_id(i)) ? DType::f32 : operand(i).dtype;
  }
  bool is_per_sample(int i) const { return context_.is_per_sample(size_t(wanted_[size_t(i)])); }
  // One value for all samples, also where there is one: variants of all batch sizes must come out alike.
  bool repeats(int i) const {
    for (size_t k = 0; k < context_.node().inputs.size(); ++k)
      if (context_.is_per_sample(k)) return !is_per_sample(i);
    return false;
  }
  void set(int i, TensorId gradient) { context_.set_gradient(size_t(wanted_[size_t(i)]), gradient); }

  // The gradient of a sum's operand is the incoming one itself.
  bool passes_through(int i) {
    const ExprNode& node = derivative_.nodes[size_t(derivative_.outputs[size_t(i)])];
    if (node.prim != Prim::input || repeats(i)) return false;
    const TensorId source = operands_[size_t(node.index)];
    const Tensor& t = context_.graph().at(source);
    if (t.shape != operand(i).shape || t.dtype != gradient_type(i)) return false;
    set(i, source);
    return true;
  }

  // The part of the derivative that `members` need and the tensors that it reads. Where these are
  // smaller than the gradient, operands that stay unread are bound for their shape.
  Expression part(const std::vector<int>& members, std::vector<TensorId>& inputs) const {
    const Expression selected = select_outputs(derivative_, members);
    std::vector<int32_t> kept;
    Expression compact = compact_inputs(selected, kept);
    inputs.clear();
    for (int32_t k : kept) inputs.push_back(operands_[size_t(k)]);
    for (size_t i = 0; i < operands_.size() && broadcast_shape(context_.graph(), inputs) != full_; ++i) {
      inputs.push_back(operands_[i]);
      ++compact.inputs;
    }
    if (compact.uses_random()) inputs.push_back(random_state_);
    return compact;
  }

  std::string name() const { return context_.node().name + ".gradient"; }

  void emit_same_shape(const std::vector<int>& members) {
    std::vector<TensorId> inputs;
    Expression expression = part(members, inputs);
    std::vector<DType> types;
    for (int i : members) types.push_back(gradient_type(i));
    const auto gradients =
        emit_pointwise(context_, name(), std::move(expression), std::move(inputs), std::move(types));
    for (size_t k = 0; k < members.size(); ++k) set(members[k], gradients[k]);
  }

  void emit_sums(const Mask& mask, const std::vector<int>& members) {
    std::vector<TensorId> inputs;
    Expression expression = part(members, inputs);
    const auto sums = emit_sum(context_, name(), std::move(expression), std::move(inputs),
                               {mask.n, mask.h, mask.w, mask.c});
    for (size_t k = 0; k < members.size(); ++k) {
      TensorId sum = sums[k];
      if (const DType type = gradient_type(members[k]); type != DType::f32) {  // sums are FP32
        ExpressionBuilder e;
        sum = emit_pointwise(context_, name(), e.finish({e.input(0)}, 1), {sum}, {type})[0];
      }
      set(members[k], sum);
    }
  }

  GradientContext& context_;
  const Expression& derivative_;
  std::span<const int> wanted_;
  const std::vector<TensorId>& operands_;
  const Shape full_;
  const TensorId random_state_;
};

}  // namespace

Shape broadcast_shapes(std::span<const Shape> shapes) {
  Shape full;
  for (const Shape& s : shapes)
    full = {broadcast_extent(full.n, s.n, full, s), broadcast_extent(full.h, s.h, full, s),
            broadcast_extent(full.w, s.w, full, s), broadcast_extent(full.c, s.c, full, s)};
  return full;
}

Shape broadcast_shape(const Graph& graph, std::span<const TensorId> operands) {
  std::vector<Shape> shapes;
  for (TensorId id : operands) shapes.push_back(graph.at(id).shape);
  return broadcast_shapes(shapes);
}

std::string ExpressionAttributes::view_text() const {
  std::string text;
  for (size_t i = 0; i < views.size(); ++i) {
    const OperandView& view = views[i];
    if (view.is_spread()) text += fmt::format("spread x{} by {}x{}: ", i, view.h, view.w);
    if (view.is_window()) text += fmt::format("x{} from channel {} on: ", i, view.first);
  }
  return text;
}

Shape full_shape(std::span<const Shape> operands, const ExpressionAttributes& attributes) {
  std::vector<Shape> shapes(operands.begin(), operands.end());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const OperandView view = attributes.view(i);
    if (view.is_spread()) shapes[i].h = shapes[i].w = 1;
    if (!view.is_window()) continue;
    if (view.first < 0 || view.count < 1 || view.first > shapes[i].c - view.count)
      fail(StatusCode::invalid_model, "an operand is a window of {} channels from {} on of {}", view.count,
           view.first, shapes[i].c);
    shapes[i].c = view.count;
  }
  const Shape full = broadcast_shapes(shapes);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const OperandView view = attributes.view(i);
    if (!view.is_spread()) continue;
    if (view.h < 1 || view.w < 1)
      fail(StatusCode::invalid_model, "an operand is spread by {}x{}; at least 1 is needed", view.h, view.w);
    check_same_shape("a spread operand", {operands[i].n, operands[i].h, operands[i].w, shapes[i].c},
                     {full.n, (full.h + view.h - 1) / view.h, (full.w + view.w - 1) / view.w, full.c});
  }
  return full;
}

Shape infer_operands(const Node& node, std::span<const TensorType> inputs) {
  const auto& attributes = node.as<ExpressionAttributes>();
  const Expression& expression = attributes.expression;
  const size_t count = size_t(expression.inputs), random = expression.uses_random() ? 1 : 0;
  check_arity(node, inputs, count + random, count + random);
  if (expression.outputs.empty()) fail(StatusCode::invalid_model, "the expression has no output");
  std::vector<Shape> shapes;
  for (size_t i = 0; i < count; ++i) {
    if (inputs[i].dtype != DType::b1 || attributes.view(i).any()) check_float("an operand", inputs[i]);
    shapes.push_back(inputs[i].shape);
  }
  if (random && (inputs[count].dtype != DType::i32 || inputs[count].shape != Shape{1, 1, 1, 4}))
    fail(StatusCode::invalid_model, "the random state has type {} and shape {}; i32 [1,1,1,4] is needed",
         name_of(inputs[count].dtype), to_string(inputs[count].shape));
  return full_shape(shapes, attributes);
}

void emit_operand_gradients(GradientContext& context, const Expression& derivative,
                            std::span<const int> wanted, const std::vector<TensorId>& operands,
                            const Shape& full, TensorId random_state) {
  OperandGradients(context, derivative, wanted, operands, full, random_state).emit_all();
}

void refuse_forms_of_gpus(const Graph& graph, const Node& node) {
  if (!node.as<ExpressionAttributes>().views.empty())
    fail(StatusCode::unsupported,
         "{} '{}' reads operands spread or by windows, for which there is no kernel on CPUs",
         name_of(node.op), node.name);
  for (const auto* ids : {&node.inputs, &node.outputs})
    for (const TensorId id : *ids)
      if (id != kNoTensor && graph.at(id).dtype == DType::b1)
        fail(StatusCode::unsupported, "{} '{}' has bits ('{}'), for which there is no kernel on CPUs",
             name_of(node.op), node.name, graph.at(id).name);
}

}  // namespace ren
