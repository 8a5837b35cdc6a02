// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/range/range.h"

namespace ren {
namespace {

class Update {
 public:
  Update(Graph& graph, const PassContext& context)
      : graph_(graph),
        spec_(context.spec),
        builder_(graph, Phase::update),
        mixed_(compute_type(context.spec.precision) != DType::f32) {}

  void run() {
    if (mixed_) {
      range(Op::range_check_finite, {scalar(Scalar::loss_scale), scalar(Scalar::overflow)},
            std::make_shared<RangeAttributes>(Region::G, Region::G));
    }
    optimizer();
    if (spec_.optimizer.ema)
      range(Op::range_ema, {scalar(Scalar::ema_decay), overflow()}, std::make_shared<EmaAttributes>());
    loss_scale();
  }

 private:
  TensorId scalar(Scalar s) const { return graph_.scalar(s); }
  TensorId overflow() const { return mixed_ ? scalar(Scalar::overflow) : kNoTensor; }

  void range(Op op, std::vector<TensorId> inputs, AttributesPtr attributes) {
    builder_.node(op, name_of(op), std::move(inputs), {}, std::move(attributes));
  }

  void optimizer() {
    auto attributes = std::make_shared<OptimizerAttributes>();
    attributes->use_momentum = spec_.optimizer.momentum;
    attributes->nesterov = spec_.optimizer.nesterov;
    attributes->has_copy = mixed_;
    if (mixed_) attributes->copy_type = compute_type(spec_.precision);
    std::vector<TensorId> inputs = {scalar(Scalar::learning_rate), scalar(Scalar::momentum),
                                    scalar(Scalar::weight_decay), overflow()};
    const bool lars = spec_.optimizer.kind == OptimizerKind::lars;
    if (lars) inputs.push_back(scalar(Scalar::trust_coefficient));
    range(lars ? Op::range_lars : Op::range_sgd, std::move(inputs), std::move(attributes));
  }

  void loss_scale() {
    auto attributes = std::make_shared<LossScaleAttributes>();
    attributes->enabled = mixed_;
    attributes->growth = spec_.loss_scale.growth;
    attributes->backoff = spec_.loss_scale.backoff;
    attributes->floor = spec_.loss_scale.floor;
    attributes->growth_interval = spec_.loss_scale.growth_interval;
    range(Op::range_update_loss_scale,
          {scalar(Scalar::overflow), scalar(Scalar::loss_scale), scalar(Scalar::growth_tracker),
           scalar(Scalar::skipped_steps), scalar(Scalar::skipped_in_a_row), scalar(Scalar::step)},
          std::move(attributes));
  }

  Graph& graph_;
  const TrainingSpec& spec_;
  GraphBuilder builder_;
  bool mixed_;
};

}  // namespace

void update(Graph& graph, const PassContext& context) {
  if (context.variant.role == Role::step) {
    Update(graph, context).run();
    return;
  }
  // Without an update the step counter still selects the next input slot.
  auto attributes = std::make_shared<LossScaleAttributes>();
  attributes->enabled = false;
  GraphBuilder builder(graph, Phase::update);
  builder.node(Op::range_update_loss_scale, "count_step",
               {graph.scalar(Scalar::overflow), graph.scalar(Scalar::loss_scale),
                graph.scalar(Scalar::growth_tracker), graph.scalar(Scalar::skipped_steps),
                graph.scalar(Scalar::skipped_in_a_row), graph.scalar(Scalar::step)},
               {}, std::move(attributes));
}

}  // namespace ren
