// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/pointwise/operands.h"

namespace ren {
namespace {

// Kernels read so many neighbours at once, all of the same pixel.
constexpr int64_t kNeighbours = 8;

// A strided convolution of one pixel, as in ResNet's shortcuts, reads one pixel of each cell of its input, so
// the gradient is zero at all others. The convolution of stride 1 makes what isn't, on the small grid.
class SpreadGradients {
 public:
  explicit SpreadGradients(Graph& graph) : graph_(graph) {}

  void run() {
    for (Node& node : graph_.nodes) {
      if (!leaves_gaps(node) || is_seen_otherwise(graph_, node.outputs[0])) continue;
      const std::vector<Use> uses = uses_of(graph_, node.outputs[0]);
      const auto may = [&](const Use& use) { return may_spread(use); };
      if (!uses.empty() && std::all_of(uses.begin(), uses.end(), may)) apply(node, uses);
    }
  }

 private:
  // By nothing that depends on the batch: variants of all batch sizes must come out alike.
  bool leaves_gaps(const Node& node) const {
    if (node.op != Op::conv_backward_data) return false;
    const auto& a = node.as<ConvAttributes>();
    const Tensor &dy = graph_.at(node.inputs[0]), &w = graph_.at(node.inputs[1]),
                 &dx = graph_.at(node.outputs[0]);
    return w.shape.h == 1 && w.shape.w == 1 && a.pad_top == 0 && a.pad_left == 0 && a.pad_bottom == 0 &&
           a.pad_right == 0 && (dy.shape.h != dx.shape.h || dy.shape.w != dx.shape.w) &&
           dx.dtype == dy.dtype && dx.shape.c % kNeighbours == 0;
  }

  // What is spread gives no extents of the image: another operand must.
  bool may_spread(const Use& use) const {
    const auto reads = takes_views(*use.node) ? operands_of(*use.node) : std::span<const TensorId>();
    if (use.input >= reads.size()) return false;
    const auto& attributes = use.node->as<ExpressionAttributes>();
    const Shape full = full_shape_of(graph_, *use.node), own = graph_.at(reads[use.input]).shape;
    bool has_image = false;
    for (size_t i = 0; i < reads.size(); ++i)
      has_image |= reads[i] != reads[use.input] && !attributes.view(i).is_spread() &&
                   same_image(graph_.at(reads[i]).shape, full);
    return has_image && !attributes.view(use.input).any() && same_image(own, full) && own.c == full.c;
  }

  static bool same_image(const Shape& a, const Shape& b) { return a.h == b.h && a.w == b.w; }

  void apply(Node& convolution, const std::vector<Use>& uses) {
    auto attributes = std::make_shared<ConvAttributes>(convolution.as<ConvAttributes>());
    const OperandView by{attributes->stride_h, attributes->stride_w};
    attributes->stride_h = attributes->stride_w = 1;
    convolution.attributes = std::move(attributes);
    convolution.inputs.resize(2);  // its input's shape isn't the gradient's now
    const Shape& grid = graph_.at(convolution.inputs[0]).shape;
    Shape& shape = graph_.at(convolution.outputs[0]).shape;
    shape.h = grid.h, shape.w = grid.w;
    for (const Use& use : uses) set_view(use, by);
  }

  Graph& graph_;
};

}  // namespace

void spread_gradients(Graph& graph, const PassContext& context) {
  if (context.spec.target.views_operands) SpreadGradients(graph).run();
}

}  // namespace ren
