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

// Who reads a tensor, and as which operand.
struct Use {
  Node* node;
  size_t input;
};

// A strided convolution of one pixel, as in ResNet's shortcuts, reads one pixel of each cell of its input, so
// the gradient is zero at all others. The convolution of stride 1 makes what isn't, on the small grid.
class SpreadGradients {
 public:
  explicit SpreadGradients(Graph& graph) : graph_(graph) {}

  void run() {
    for (Node& node : graph_.nodes) {
      if (!leaves_gaps(node) || is_seen_otherwise(node.outputs[0])) continue;
      const std::vector<Use> uses = uses_of(node.outputs[0]);
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

  bool is_seen_otherwise(TensorId id) const {
    const Tensor& t = graph_.at(id);
    const auto is_output = [&](const GraphOutput& o) { return graph_.storage(o.value) == id; };
    const auto is_alias = [&](const Tensor& other) { return other.alias_of == id; };
    return t.keep || t.alias_of != kNoTensor || (t.region != Region::F && t.region != Region::T) ||
           std::any_of(graph_.outputs.begin(), graph_.outputs.end(), is_output) ||
           std::any_of(graph_.tensors.begin(), graph_.tensors.end(), is_alias);
  }

  std::vector<Use> uses_of(TensorId id) {
    std::vector<Use> uses;
    for (Node& node : graph_.nodes)
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] == id) uses.push_back({&node, k});
    return uses;
  }

  // What is spread gives no extents of the image: another operand must.
  bool may_spread(const Use& use) const {
    const auto reads = takes_expression(*use.node) ? operands_of(*use.node) : std::span<const TensorId>();
    if (use.input >= reads.size()) return false;
    const auto& attributes = use.node->as<ExpressionAttributes>();
    std::vector<Shape> shapes;
    for (const TensorId id : reads) shapes.push_back(graph_.at(id).shape);
    const Shape full = full_shape(shapes, attributes), own = shapes[use.input];
    bool has_image = false;
    for (size_t i = 0; i < shapes.size(); ++i)
      has_image |= reads[i] != reads[use.input] && !attributes.spread(i).any() && same_image(shapes[i], full);
    return has_image && same_image(own, full) && own.c == full.c;
  }

  static bool same_image(const Shape& a, const Shape& b) { return a.h == b.h && a.w == b.w; }

  void apply(Node& convolution, const std::vector<Use>& uses) {
    auto attributes = std::make_shared<ConvAttributes>(convolution.as<ConvAttributes>());
    const Spread by{attributes->stride_h, attributes->stride_w};
    attributes->stride_h = attributes->stride_w = 1;
    convolution.attributes = std::move(attributes);
    convolution.inputs.resize(2);  // its input's shape isn't the gradient's now
    const Shape& grid = graph_.at(convolution.inputs[0]).shape;
    Shape& shape = graph_.at(convolution.outputs[0]).shape;
    shape.h = grid.h, shape.w = grid.w;
    for (const Use& use : uses)
      use.node->attributes = use.node->op == Op::pointwise ? spread<PointwiseAttributes>(use, by)
                                                           : spread<ReduceAttributes>(use, by);
  }

  template <typename T>
  static AttributesPtr spread(const Use& use, Spread by) {
    auto attributes = std::make_shared<T>(use.node->as<T>());
    attributes->spreads.resize(size_t(attributes->expression.inputs));
    attributes->spreads[use.input] = by;
    return attributes;
  }

  Graph& graph_;
};

}  // namespace

void spread_gradients(Graph& graph, const PassContext& context) {
  if (context.spec.target.spreads_operands) SpreadGradients(graph).run();
}

}  // namespace ren
