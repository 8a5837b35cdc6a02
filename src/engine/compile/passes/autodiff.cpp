// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "engine/base/status.h"
#include "engine/compile/passes/expression_nodes.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/op.h"
#include "engine/ops/pointwise/pointwise.h"

namespace ren {
namespace {

Expression sum_of(int terms) {
  ExpressionBuilder e;
  Value sum = e.input(0);
  for (int i = 1; i < terms; ++i) sum = e.add(sum, e.input(i));
  return e.finish({sum}, terms);
}

// Reverse mode over the node list: contributions to a tensor's gradient are gathered from all
// its readers before its writer is visited, and summed then.
class Autodiff {
 public:
  explicit Autodiff(Graph& graph) : graph_(graph), builder_(graph, Phase::backward) {}

  void run() {
    mark_needed();
    per_sample_ = values_per_sample(graph_);
    const size_t forward_nodes = graph_.nodes.size();
    for (size_t i = forward_nodes; i-- > 0;) visit(graph_.nodes[i]);
    for (size_t p = 0; p < graph_.parameters.size(); ++p) store_parameter_gradient(p);
  }

 private:
  class Context final : public GradientContext {
   public:
    Context(Autodiff& owner, const Node& node) : GradientContext(owner.builder_, node), owner_(owner) {}
    TensorId output_gradient(size_t output) override {
      const TensorId id = node().outputs[output];
      return id == kNoTensor ? kNoTensor : owner_.gradient_of(id);
    }
    bool wants(size_t input) const override {
      const TensorId id = node().inputs[input];
      return id != kNoTensor && owner_.needed_[size_t(id)];
    }
    bool is_per_sample(size_t input) const override {
      const TensorId id = node().inputs[input];
      return id != kNoTensor && owner_.per_sample_[size_t(id)];
    }
    void set_gradient(size_t input, TensorId contribution) override {
      const TensorId id = node().inputs[input];
      require(graph().at(id).shape == graph().at(contribution).shape, "gradient of '{}' has shape {}, not {}",
              graph().at(id).name, to_string(graph().at(contribution).shape),
              to_string(graph().at(id).shape));
      owner_.contributions_[size_t(id)].push_back(contribution);
    }

   private:
    Autodiff& owner_;
  };

  // A tensor needs a gradient when a trained parameter flows into it.
  void mark_needed() {
    needed_.assign(graph_.tensors.size(), false);
    contributions_.resize(graph_.tensors.size());
    for (const Parameter& p : graph_.parameters)
      if (p.trainable) needed_[size_t(p.value)] = true;
    for (const Node& node : graph_.nodes) {
      bool any = false;
      for (const TensorId id : node.inputs) any |= id != kNoTensor && needed_[size_t(id)];
      if (!any) continue;
      for (const TensorId id : node.outputs)
        if (id != kNoTensor) needed_[size_t(id)] = true;
    }
  }

  void visit(const Node& node) {
    bool wanted = false, flows = node.op == Op::cross_entropy;
    for (const TensorId id : node.inputs) wanted |= id != kNoTensor && needed_[size_t(id)];
    for (const TensorId id : node.outputs) flows |= id != kNoTensor && !contributions_[size_t(id)].empty();
    if (!wanted || !flows) return;
    const auto gradient = definition_of(node.op).gradient;
    if (gradient == nullptr)
      throw Error(StatusCode::unsupported,
                  fmt::format("{} '{}' has no gradient", name_of(node.op), node.name), name_of(node.op),
                  node.name);
    Context context(*this, node);
    gradient(context);
  }

  TensorId gradient_of(TensorId id) {
    std::vector<TensorId>& terms = contributions_[size_t(id)];
    if (terms.empty()) return kNoTensor;
    if (terms.size() > 1) {
      const std::string name = "d(" + graph_.at(id).name + ")";
      const TensorId sum = emit(builder_, Op::pointwise, name, terms,
                                std::make_shared<PointwiseAttributes>(sum_of(int(terms.size()))))[0];
      contributions_[size_t(id)] = {sum};
      return sum;
    }
    return terms[0];
  }

  // The node that computes a parameter's gradient writes it straight into its slot of G.
  void store_parameter_gradient(size_t p) {
    Parameter& parameter = graph_.parameters[p];
    if (!parameter.trainable) return;
    TensorId gradient = gradient_of(parameter.value);
    if (gradient == kNoTensor) {
      parameter.trainable = false;
      parameter.reason = "no path leads from it to the loss";
      return;
    }
    if (graph_.at(gradient).alias_of != kNoTensor || graph_.at(gradient).region != Region::F ||
        shared_.count(gradient) != 0) {
      ExpressionBuilder e;
      gradient = emit(builder_, Op::pointwise, "copy(" + graph_.at(gradient).name + ")", {gradient},
                      std::make_shared<PointwiseAttributes>(e.finish({e.input(0)}, 1)))[0];
    }
    shared_.insert(gradient);
    Tensor& t = graph_.at(gradient);
    require(t.dtype == DType::f32, "the gradient of parameter '{}' is not FP32", parameter.name);
    t.region = Region::G;
    t.parameter = int32_t(p);
    t.name = parameter.name;
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<bool> needed_, per_sample_;
  std::vector<std::vector<TensorId>> contributions_;
  std::set<TensorId> shared_;  // gradients that already have a slot
};

}  // namespace

void autodiff(Graph& graph, const PassContext& context) {
  if (context.training()) Autodiff(graph).run();
}

}  // namespace ren
