// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/role_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/liveness.h"
#include "engine/plan/pack.h"
#include "engine/plan/slot.h"

namespace ren {
namespace {

class RoleLayouter {
 public:
  RoleLayouter(std::span<const Variant* const> variants, const PlanOptions& options)
      : variants_(variants), options_(options), graph_(*variants[0]->graph) {}

  RoleLayout run(uint64_t base) {
    std::vector<const Graph*> graphs;
    for (const Variant* v : variants_) {
      check_same_structure(*variants_[0], *v);
      graphs.push_back(v->graph);
    }
    liveness_ = find_liveness(graphs, options_);
    block_offsets_.assign(liveness_.blocks.size(), 0);
    result_.workspaces.assign(graph_.nodes.size(), kNone);
    add_blocks(Region::F);
    result_.features = place(base, result_.feature_quality);
    add_blocks(Region::T);
    add_workspaces();
    result_.temporaries = place(result_.features.end(), result_.temporary_quality);
    for (const int32_t block : liveness_.block_of)
      result_.offsets.push_back(block < 0 ? kNone : block_offsets_[size_t(block)]);
    return std::move(result_);
  }

 private:
  void add(Block block, uint64_t unshared, uint64_t& target) {
    intervals_.push_back({block.bytes, block.first, block.last});
    targets_.push_back(&target);
    unshared_ += unshared;
    blocks_.push_back(std::move(block));
  }

  void add_blocks(Region region) {
    for (size_t i = 0; i < liveness_.blocks.size(); ++i) {
      const LiveBlock& b = liveness_.blocks[i];
      if (b.region != region) continue;
      std::string name = graph_.at(b.tensors[0]).name;
      if (b.tensors.size() > 1) name += fmt::format(" (+{} in place)", b.tensors.size() - 1);
      add({std::move(name), region, 0, b.bytes, b.first, b.last}, b.bytes * b.tensors.size(),
          block_offsets_[i]);
    }
  }

  void add_workspaces() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      uint64_t bytes = 0;
      for (const Variant* v : variants_)
        if (v->choices) bytes = std::max(bytes, align_up(v->choices->nodes[i].workspace_bytes));
      if (bytes == 0) continue;
      const Node& node = graph_.nodes[i];
      add({fmt::format("workspace of {} '{}'", name_of(node.op), node.name), Region::T, 0, bytes, int32_t(i),
           int32_t(i)},
          bytes, result_.workspaces[i]);
    }
  }

  // Lays out what was added since the last call.
  Extent place(uint64_t base, LayoutQuality& quality) {
    const Packing packing = pack(intervals_);
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i].offset = *targets_[i] = base + packing.offsets[i];
    result_.blocks.insert(result_.blocks.end(), blocks_.begin(), blocks_.end());
    quality = {unshared_, packing.lower_bound, packing.bytes, packing.method};
    intervals_.clear(), targets_.clear(), blocks_.clear();
    unshared_ = 0;
    return {base, packing.bytes};
  }

  std::span<const Variant* const> variants_;
  const PlanOptions& options_;
  const Graph& graph_;
  Liveness liveness_;
  std::vector<uint64_t> block_offsets_;
  RoleLayout result_;

  std::vector<Interval> intervals_;
  std::vector<uint64_t*> targets_;
  std::vector<Block> blocks_;
  uint64_t unshared_ = 0;
};

}  // namespace

RoleLayout lay_out_role(std::span<const Variant* const> variants, const PlanOptions& options, uint64_t base) {
  return RoleLayouter(variants, options).run(base);
}

}  // namespace ren
