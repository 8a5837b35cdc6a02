// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/plan/op_memory.h"

namespace ren {
namespace {

constexpr size_t kNear = 16;       // nodes apart, as of reductions
constexpr size_t kMostJoint = 13;  // operands: the gradient, and six of each of two normalisations

// Two pointwise nodes over one index space that read the same tensor become one with both results: both
// branches of a residual block end in a normalisation of the same gradient.
class MergePointwise {
 public:
  explicit MergePointwise(Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_candidate(graph_.nodes[i])) continue;
      if (const auto other = find_other(i)) {
        graph_.nodes[i] = merged(graph_.nodes[i], graph_.nodes[*other]);
        graph_.nodes.erase(graph_.nodes.begin() + std::ptrdiff_t(*other));
      }
    }
  }

 private:
  // One that writes what backward goes on with; masks and 32-bit values have kernels of other widths.
  bool is_candidate(const Node& node) const {
    return node.op == Op::pointwise && node.phase == Phase::backward && node.outputs.size() == 1 &&
           is_16bit(graph_.at(node.outputs[0]).dtype) && graph_.at(node.outputs[0]).region == Region::F &&
           !expression_of(node).uses_random();
  }

  std::optional<size_t> find_other(size_t first) const {
    const Node& node = graph_.nodes[first];
    const Shape full = graph_.at(node.outputs[0]).shape;
    std::vector<TensorId> written{graph_.storage(node.outputs[0])};  // not there yet when the first begins
    for (size_t i = first + 1; i < graph_.nodes.size() && i <= first + kNear; ++i) {
      const Node& other = graph_.nodes[i];
      if (is_candidate(other) && graph_.at(other.outputs[0]).type() == graph_.at(node.outputs[0]).type() &&
          !reads_one_of(graph_, other, written) && share_a_tensor(graph_, node, other, full) &&
          joint_operands(node, other).size() <= kMostJoint && frees_its_place(first, i, full))
        return i;
      for (const TensorId id : other.outputs)
        if (id != kNoTensor) written.push_back(graph_.storage(id));
    }
    return {};
  }

  // The second result is there earlier; something as large that only these two still read goes earlier.
  bool frees_its_place(size_t first, size_t second, const Shape& full) const {
    const auto reads = operands_of(graph_.nodes[second]);
    return std::any_of(reads.begin(), reads.end(), [&](TensorId id) {
      const Tensor& t = graph_.at(id);
      return is_16bit(t.dtype) && t.shape == full && t.region == Region::F && !t.keep &&
             last_other_reader(graph_.storage(id), second) <= first;
    });
  }

  size_t last_other_reader(TensorId storage, size_t without) const {
    size_t last = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto& inputs = graph_.nodes[i].inputs;
      for (size_t k = 0; k < inputs.size(); ++k)
        if (i != without && inputs[k] != kNoTensor && reads_bytes(graph_.nodes[i].op, k) &&
            graph_.storage(inputs[k]) == storage)
          last = i;
    }
    return last;
  }

  static Node merged(const Node& a, const Node& b) {
    JointExpression joint = join_expressions(a, b);
    Node node = a;
    node.inputs = joint.operands;
    node.outputs.push_back(b.outputs[0]);
    std::vector<DType> types = a.as<PointwiseAttributes>().types;
    const auto& more = b.as<PointwiseAttributes>().types;
    types.insert(types.end(), more.begin(), more.end());
    node.attributes = std::make_shared<PointwiseAttributes>(joint.finish({joint.first[0], joint.second[0]}),
                                                            std::move(types));
    return node;
  }

  Graph& graph_;
};

}  // namespace

void merge_pointwise(Graph& graph, const PassContext& context) {
  if (context.spec.target.stores_in_reductions && context.training()) MergePointwise(graph).run();
}

}  // namespace ren
