// SPDX-License-Identifier: Apache-2.0
#include "engine/compile/compile.h"

#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"

namespace ren {
namespace {

struct Pass {
  const char* name;
  void (*run)(Graph&, const PassContext&);
};

// The whole way from an imported graph to a program. Passes that don't apply to a role or a
// precision return at once.
constexpr Pass kPasses[] = {
    {"rebatch", rebatch},
    {"infer_mode", infer_mode},
    {"attach_input", attach_input},
    {"attach_loss", attach_loss},
    {"absorb_bias", absorb_bias},
    {"relu_behind_pools", relu_behind_pools},
    {"autodiff", autodiff},
    {"lower", lower},
    {"amp", amp},
    {"fuse", fuse},
    {"compute_in_pools", compute_in_pools},
    {"pack_masks", pack_masks},
    {"store_in_reductions", store_in_reductions},
    {"merge_reductions", merge_reductions},
    {"merge_pointwise", merge_pointwise},
    {"recompute", recompute},
    {"sum_in_convolutions", sum_in_convolutions},
    {"statistics_from_sums", statistics_from_sums},
    {"spread_gradients", spread_gradients},
    {"read_windows", read_windows},
    {"update", update},
};

}  // namespace

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::fp16:
      return "fp16";
    case Precision::bf16:
      return "bf16";
    case Precision::tf32:
      return "tf32";
  }
  return "?";
}

TargetSpec target_of(DeviceKind kind) {
  TargetSpec target;
  if (kind != DeviceKind::cuda) return target;
  target.pads_images = true;
  target.computes_in_pools = true;
  target.stores_in_reductions = true;
  target.sums_in_convolutions = true;
  target.packs_masks = true;
  target.views_operands = true;
  target.heavy_prim_bytes = 2;  // an exp costs about the time in which memory moves two bytes (sm_90)
  return target;
}

Graph compile_variant(const Graph& forward, const TrainingSpec& spec, const VariantSpec& variant,
                      const PassObserver& observer) {
  Graph graph = forward;
  const PassContext context{spec, variant};
  for (const Pass& pass : kPasses) {
    pass.run(graph, context);
    verify(graph, pass.name);
    if (observer) observer(pass.name, graph);
  }
  return graph;
}

Graph with_batch(const Graph& forward, int64_t batch) {
  Graph graph = forward;
  const TrainingSpec spec;
  const VariantSpec variant{Role::predict, batch};
  rebatch(graph, {spec, variant});
  return graph;
}

}  // namespace ren
