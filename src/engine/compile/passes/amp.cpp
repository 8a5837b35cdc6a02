// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/load_batch/load_batch.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {
namespace {

// Mixed precision: features and their gradients in 16 bits, convolutions and matrix products read
// 16-bit copies of the weights; statistics, reductions, losses and everything per channel stay FP32.
class Amp {
 public:
  Amp(Graph& graph, DType type) : graph_(graph), builder_(graph), type_(type) {}

  void run() {
    feature_.assign(graph_.tensors.size(), false);
    std::vector<Node> nodes;
    nodes.swap(graph_.nodes);
    for (Node& node : nodes) {
      builder_.set_phase(node.phase);
      const bool features = set_outputs(node);
      set_inputs(node, features);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  bool feature(TensorId id) const {
    return id != kNoTensor && size_t(id) < feature_.size() && feature_[size_t(id)];
  }

  // Whether an output varies with the sample, so that it is a feature (or a feature's gradient).
  bool makes_features(const Node& node) const {
    switch (node.op) {
      case Op::load_batch:
      case Op::conv:
      case Op::conv_backward_data:
      case Op::cross_entropy_backward:
        return true;
      case Op::gemm:
        return !node.as<GemmAttributes>().has_out;
      case Op::conv_backward_weights:
      case Op::batch_norm_statistics:
      case Op::cross_entropy:
      case Op::reduce:  // FP32 results, whatever they are of
      case Op::layer_norm_statistics:
      case Op::group_norm_statistics:
      case Op::group_sum:
        return false;
      case Op::pointwise:
        return reads(node, false);  // of FP32 statistics alone: FP32
      default:
        return reads(node, true);
    }
  }

  bool reads(const Node& node, bool or_per_sample) const {
    for (const TensorId id : node.inputs)
      if (feature(id) || (or_per_sample && per_sample_.count(id) != 0)) return true;
    return false;
  }

  // The same bytes: the type and what it is a view of carry over.
  void set_view(const Node& node) {
    const TensorId from = node.inputs[0], to = node.outputs[0];
    graph_.at(to).dtype = graph_.at(from).dtype;
    feature_[size_t(to)] = feature(from);
    if (per_sample_.count(from) != 0) per_sample_[to] = true;
  }

  // Whether the node makes features.
  bool set_outputs(Node& node) {
    if (node.op == Op::view) {
      set_view(node);
      return false;
    }
    const bool features = makes_features(node);
    note_per_sample(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorId id = node.outputs[i];
      if (id == kNoTensor || !features) continue;
      if (node.op == Op::load_batch && i > 0) continue;  // labels and scalars
      Tensor& t = graph_.at(id);
      if (t.dtype != DType::f32 || t.region != Region::F) continue;
      t.dtype = type_;
      feature_[size_t(id)] = true;
    }
    set_attribute_types(node);
    return features;
  }

  // FP32 values that vary with the sample ([N,1,1,C] sums, [N,H,W,1] statistics) and pointwise
  // functions of them; what other ops make of them is a feature again.
  void note_per_sample(const Node& node) {
    const bool kept = node.op == Op::reduce && node.as<ReduceAttributes>().n;
    bool derived = false;
    if (node.op == Op::pointwise && !reads(node, false))
      for (const TensorId id : node.inputs) derived |= per_sample_.count(id) != 0;
    if (kept || derived || node.op == Op::layer_norm_statistics || node.op == Op::group_norm_statistics ||
        node.op == Op::group_sum)
      for (const TensorId id : node.outputs)
        if (id != kNoTensor) per_sample_[id] = true;
  }

  // Attributes that state an output's type follow the tensors.
  void set_attribute_types(Node& node) {
    if (node.op == Op::pointwise) {
      std::vector<DType> types;
      for (const TensorId id : node.outputs)
        types.push_back(id == kNoTensor ? DType::f32 : graph_.at(id).dtype);
      auto attributes = std::make_shared<PointwiseAttributes>(node.as<PointwiseAttributes>());
      attributes->types = std::move(types);
      node.attributes = std::move(attributes);
    } else if (node.op == Op::load_batch) {
      auto attributes = std::make_shared<LoadBatchAttributes>(node.as<LoadBatchAttributes>());
      attributes->image_type = type_;
      node.attributes = std::move(attributes);
    } else if (node.op == Op::cross_entropy_backward) {
      auto attributes = std::make_shared<CrossEntropyAttributes>(node.as<CrossEntropyAttributes>());
      attributes->gradient_type = type_;
      node.attributes = std::move(attributes);
    }
  }

  // Kernels that take features take only 16-bit ones; weights come from A. What moves other values, a piece
  // of a parameter or FP32 gradients, leaves them as they are.
  void set_inputs(Node& node, bool features) {
    switch (node.op) {
      case Op::conv:
      case Op::gemm:
      case Op::conv_backward_data:
      case Op::conv_backward_weights:
        break;
      case Op::max_pool_backward:
      case Op::average_pool_backward:
      case Op::max_pool:
      case Op::average_pool:
      case Op::concat:
      case Op::slice:
      case Op::slice_backward:
      case Op::pad:
      case Op::pad_backward:
      case Op::permute:
      case Op::softmax:
      case Op::softmax_backward:
        if (features) break;
        return;
      default:
        return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId id = node.inputs[i];
      if (id == kNoTensor || graph_.at(id).dtype != DType::f32) continue;
      const bool bias = i == 2 && (node.op == Op::conv || node.op == Op::gemm);
      if (bias) continue;  // added in FP32
      node.inputs[i] = sixteen_bit(id);
    }
  }

  TensorId sixteen_bit(TensorId id) {
    const Tensor t = graph_.at(id);
    const auto found = copies_.find(id);
    if (found != copies_.end()) return found->second;
    TensorId copy;
    if (t.region == Region::W) {
      copy = builder_.family_tensor(t.parameter, Region::A, type_);
      graph_.at(copy).shape = graph_.parameters[size_t(t.parameter)].shape;
      if (t.alias_of != kNoTensor) {
        const TensorId whole = copy;
        copy = builder_.tensor(t.name, {t.shape, type_}, Region::A);
        graph_.at(copy).alias_of = whole;
        graph_.at(copy).parameter = t.parameter;
      }
    } else {
      ExpressionBuilder e;
      copy = emit(
          builder_, Op::pointwise, "cast(" + t.name + ")", {id},
          std::make_shared<PointwiseAttributes>(e.finish({e.input(0)}, 1), std::vector<DType>{type_}))[0];
    }
    copies_[id] = copy;
    return copy;
  }

  Graph& graph_;
  GraphBuilder builder_;
  DType type_;
  std::vector<bool> feature_;
  std::map<TensorId, bool> per_sample_;
  std::map<TensorId, TensorId> copies_;
};

}  // namespace

void amp(Graph& graph, const PassContext& context) {
  const DType type = compute_type(context.spec.precision);
  if (type != DType::f32) Amp(graph, type).run();
}

}  // namespace ren
