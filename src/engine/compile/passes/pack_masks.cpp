// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ir/builder.h"

namespace ren {
namespace {

constexpr int64_t kMaskBits = 8;  // channels in a byte

// Does the expression ask of that operand only whether it is above zero?
bool asks_for_sign_alone(const Expression& e, int32_t operand) {
  const auto is_operand = [&](int32_t i) {
    return i >= 0 && e.nodes[size_t(i)].prim == Prim::input && e.nodes[size_t(i)].index == operand;
  };
  const auto is_zero = [&](int32_t i) {
    return i >= 0 && e.nodes[size_t(i)].prim == Prim::constant && e.nodes[size_t(i)].value == 0;
  };
  if (std::any_of(e.outputs.begin(), e.outputs.end(), is_operand)) return false;
  return std::all_of(e.nodes.begin(), e.nodes.end(), [&](const ExprNode& n) {
    if (is_operand(n.a) || is_operand(n.c)) return false;
    return !is_operand(n.b) || (n.prim == Prim::less && is_zero(n.a));
  });
}

class PackMasks {
 public:
  explicit PackMasks(Graph& graph) : graph_(graph), builder_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (makes_a_mask(graph_.nodes[i])) pack(i);
  }

 private:
  // Backward nodes whose expressions ask for the sign of a 16-bit value: all of those that read it so.
  std::vector<size_t> askers(TensorId value) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.phase != Phase::backward || !takes_expression(node)) continue;
      const auto reads = operands_of(node);
      if (std::count(reads.begin(), reads.end(), value) != 1) continue;
      const auto at = std::find(reads.begin(), reads.end(), value);
      if (asks_for_sign_alone(expression_of(node), int32_t(at - reads.begin()))) found.push_back(i);
    }
    return found;
  }

  bool makes_a_mask(const Node& node) const {
    if (node.op != Op::pointwise || node.phase != Phase::forward || node.outputs.size() != 1) return false;
    const auto& a = node.as<PointwiseAttributes>();
    const TensorId value = node.outputs[0];
    // A kernel writes bits by the byte, which takes neighbours of the same pixel, eight at a time: that is
    // how wide it works where an operand is as large as the value.
    const auto is_wide = [&](TensorId id) { return graph_.at(id).type() == graph_.at(value).type(); };
    return !a.expression.uses_random() && is_16bit(graph_.at(value).dtype) &&
           graph_.at(value).region == Region::F && graph_.at(value).shape.c % kMaskBits == 0 &&
           std::any_of(node.inputs.begin(), node.inputs.end(), is_wide);
  }

  void pack(size_t producer) {
    const TensorId value = graph_.nodes[producer].outputs[0];
    const std::vector<size_t> readers = askers(value);
    if (readers.empty()) return;
    const TensorId mask =
        builder_.tensor(graph_.at(value).name + ".mask", {graph_.at(value).shape, DType::b1}, Region::F);
    Node& node = graph_.nodes[producer];
    const auto& old = node.as<PointwiseAttributes>();
    ExpressionBuilder e;
    std::vector<Value> arguments;
    for (int i = 0; i < old.expression.inputs; ++i) arguments.push_back(e.input(i));
    const Value result = e.inline_expression(old.expression, arguments)[0];
    const Value above = e.apply(Prim::less, e.constant(0), result);
    auto attributes =
        std::make_shared<PointwiseAttributes>(e.finish({result, above}, old.expression.inputs),
                                              std::vector<DType>{graph_.at(value).dtype, DType::b1});
    attributes->training_only = old.training_only;
    node.attributes = std::move(attributes);
    node.outputs.push_back(mask);
    for (const size_t reader : readers)  // 0 < mask says the same as 0 < value
      std::replace(graph_.nodes[reader].inputs.begin(), graph_.nodes[reader].inputs.end(), value, mask);
  }

  Graph& graph_;
  GraphBuilder builder_;
};

}  // namespace

void pack_masks(Graph& graph, const PassContext& context) {
  if (context.spec.target.packs_masks && context.training()) PackMasks(graph).run();
}

}  // namespace ren
