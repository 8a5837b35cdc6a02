// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "engine/base/status.h"
#include "engine/plan/live_check.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/slot.h"

namespace ren {
namespace {

constexpr size_t kMostProblems = 20;

bool is_persistent(Region region) { return region != Region::F && region != Region::T; }

class Validator {
 public:
  Validator(const MemoryPlan& plan, std::span<const Variant> variants, const PlanOptions& options)
      : plan_(plan), data_(plan.data()), variants_(variants), options_(options) {}

  void run() {
    if (check_sizes()) {
      for (int role = 0; role < kRoles; ++role) check_regions(Role(role));
      check_slots();
      check_families();
      for (size_t v = 0; v < variants_.size(); ++v) check_tensors(v);
      check_shared_tensors();
      check_equal_offsets();
      for (size_t v = 0; v < variants_.size(); ++v)
        for (std::string& problem : find_live_overlaps(plan_, v, variants_[v], options_))
          add("variant '{}': {}", variants_[v].name, problem);
    }
    if (problems_.empty()) return;
    std::string text = fmt::format("the memory plan is wrong in {} places:", count_);
    for (const std::string& p : problems_) text += "\n  " + p;
    throw Error(StatusCode::internal, text);
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kMostProblems) problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool check_sizes() {
    if (data_.variants.size() != variants_.size() || variants_.empty()) {
      add("it is for {} variants, not for {}", data_.variants.size(), variants_.size());
      return false;
    }
    for (size_t v = 0; v < variants_.size(); ++v) {
      const Graph& graph = *variants_[v].graph;
      const VariantPlan& p = data_.variants[v];
      if (p.offsets.size() != graph.tensors.size() || p.workspaces.size() != graph.nodes.size())
        add("variant '{}' has {} tensors and {} nodes, the plan knows {} and {}", variants_[v].name,
            graph.tensors.size(), graph.nodes.size(), p.offsets.size(), p.workspaces.size());
    }
    return problems_.empty();
  }

  void check_regions(Role role) {
    uint64_t end = 0;
    for (int r = 0; r < kRegions; ++r) {
      const Region region = Region(r);
      const Extent e = plan_.region(region, role);
      if (e.offset % kAlignment != 0 || e.bytes % kAlignment != 0)
        add("region {} of role {} is misaligned: {} bytes at {}", name_of(region), name_of(role), e.bytes,
            e.offset);
      if (e.offset < end)
        add("region {} of role {} begins at {} and overlaps {}, which ends at {}", name_of(region),
            name_of(role), e.offset, name_of(Region(r - 1)), end);
      if (e.offset > end)
        add("region {} of role {} begins at {} and leaves a gap after {}", name_of(region), name_of(role),
            e.offset, end);
      if (is_persistent(region) && e != plan_.region(region, Role(0)))
        add("region {} lies elsewhere in role {} than in role {}", name_of(region), name_of(role),
            name_of(Role(0)));
      end = e.end();
    }
    largest_end_ = std::max(largest_end_, end);
    if (role == Role(kRoles - 1) && largest_end_ != data_.arena_bytes)
      add("the arena has {} bytes, its regions end at {}", data_.arena_bytes, largest_end_);
  }

  // The slots themselves: each parameter once, in the order asked for, without gaps.
  void check_slots() {
    const std::vector<Parameter>& parameters = variants_[0].graph->parameters;
    std::vector<bool> images(parameters.size(), false);
    for (const Variant& v : variants_) {
      const std::vector<bool> found = parameters_that_meet_images(*v.graph);
      for (size_t i = 0; i < images.size() && i < found.size(); ++i) images[i] = images[i] || found[i];
    }
    if (!options_.slot_order.empty() && options_.slot_order.size() != parameters.size())
      return add("the slot order has {} entries for {} parameters", options_.slot_order.size(),
                 parameters.size());
    if (data_.slots.size() != parameters.size())
      return add("there are {} slots for {} parameters", data_.slots.size(), parameters.size());
    for (size_t i = 0; i < data_.slots.size(); ++i) {
      const Slot& slot = data_.slots[i];
      const int32_t wanted = options_.slot_order.empty() ? int32_t(i) : options_.slot_order[i];
      if (slot.parameter != wanted)
        return add("slot {} holds parameter {}, the order says {} ('{}')", i, slot.parameter, wanted,
                   parameters[size_t(wanted)].name);
      const std::string& name = parameters[size_t(wanted)].name;
      if (slot.offset % (2 * kAlignment) != 0) add("the slot of '{}' is misaligned: {}", name, slot.offset);
      if (slot.offset != family_bytes_)
        add("the slot of '{}' begins at {}, its predecessor ends at {}", name, slot.offset, family_bytes_);
      const uint64_t elements = padded_elements(parameters[size_t(wanted)], options_, images[size_t(wanted)]);
      if (slot.elements != elements)
        add("the slot of '{}' has {} elements, not {}", name, slot.elements, elements);
      const uint64_t bytes = slot_bytes(DType::f32, elements);
      if (bytes != 2 * slot_bytes(DType::f16, elements)) add("W and A are not 2:1 in the slot of '{}'", name);
      family_bytes_ += bytes;
    }
  }

  bool trains() const {
    return std::any_of(variants_.begin(), variants_.end(),
                       [](const Variant& v) { return v.role == Role::step || v.role == Role::accumulate; });
  }

  void check_families() {
    const std::tuple<Region, bool, uint64_t> families[] = {
        {Region::W, true, family_bytes_},
        {Region::E, options_.ema, family_bytes_},
        {Region::A, options_.compute_copies, family_bytes_ / 2},
        {Region::G, trains(), family_bytes_},
        {Region::M, options_.first_moments, family_bytes_},
        {Region::V, options_.second_moments, family_bytes_}};
    for (const auto& [region, exists, bytes] : families) {
      const uint64_t wanted = exists ? bytes : 0;
      if (plan_.region(region).bytes != wanted)
        add("region {} has {} bytes, its slots {}", name_of(region), plan_.region(region).bytes, wanted);
    }
  }

  void check_tensors(size_t v) {
    const Graph& graph = *variants_[v].graph;
    const TensorId images = graph.input == kNoTensor ? kNoTensor : graph.storage(graph.input);
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& t = graph.tensors[i];
      const uint64_t offset = plan_.offset(v, TensorId(i));
      if (offset == kNone) {
        if (is_persistent(t.region)) add("variant '{}': tensor '{}' has no place", variants_[v].name, t.name);
        continue;
      }
      if (offset % kAlignment != 0)
        add("variant '{}': tensor '{}' is misaligned: {}", variants_[v].name, t.name, offset);
      const TensorId owner = graph.storage(TensorId(i));
      if (offset != plan_.offset(v, owner))
        add("variant '{}': '{}' lies at {}, what it aliases at {}", variants_[v].name, t.name, offset,
            plan_.offset(v, owner));
      if (is_parameter_family(t.region)) {
        check_family_tensor(v, t, offset);
      } else {
        check_inside(v, t.name, t.region, offset, tensor_bytes(t, options_, owner == images));
      }
    }
    check_workspaces(v);
  }

  void check_workspaces(size_t v) {
    const Choices* choices = variants_[v].choices;
    for (size_t i = 0; i < variants_[v].graph->nodes.size(); ++i) {
      const std::string name = "workspace of " + variants_[v].graph->nodes[i].name;
      const uint64_t bytes = choices ? choices->nodes[i].workspace_bytes : 0;
      const uint64_t offset = plan_.workspace(v, i);
      if (offset == kNone) {
        if (bytes > 0) add("variant '{}': the {} has no place", variants_[v].name, name);
        continue;
      }
      if (offset % kAlignment != 0)
        add("variant '{}': the {} is misaligned: {}", variants_[v].name, name, offset);
      check_inside(v, name, Region::T, offset, align_up(bytes));
    }
  }

  void check_inside(size_t v, const std::string& name, Region region, uint64_t offset, uint64_t bytes) {
    const Extent e = plan_.region(region, variants_[v].role);
    if (offset >= e.offset && offset + bytes <= e.end()) return;
    add("variant '{}': '{}' ({} bytes at {}) lies outside region {} ({} bytes at {})", variants_[v].name,
        name, bytes, offset, name_of(region), e.bytes, e.offset);
  }

  void check_family_tensor(size_t v, const Tensor& t, uint64_t offset) {
    const auto slot = std::find_if(data_.slots.begin(), data_.slots.end(),
                                   [&](const Slot& s) { return s.parameter == t.parameter; });
    if (slot == data_.slots.end()) return add("'{}' belongs to no slot", t.name);
    const uint64_t inside = t.region == Region::A ? slot->offset / 2 : slot->offset;
    const Extent e = plan_.region(t.region);
    if (e.bytes == 0) return add("'{}' lies in region {}, which is empty", t.name, name_of(t.region));
    if (offset != e.offset + inside)
      add("variant '{}': '{}' lies at {}, the slot of its parameter in {} at {}", variants_[v].name, t.name,
          offset, name_of(t.region), e.offset + inside);
  }

  // Within B, N, R, S and I nothing overlaps.
  void check_shared_tensors() {
    std::map<std::pair<uint64_t, std::string>, uint64_t> places;  // (offset, region/name) -> bytes
    if (options_.norms) {
      const uint64_t bytes = slot_bytes(DType::f32, kNormsPerSlot * data_.slots.size());
      places[{plan_.region(Region::N).offset, "N/norms of all slots"}] = bytes;
      if (plan_.region(Region::N).bytes < bytes) add("region N has no room for the norms of all slots");
    }
    for (size_t v = 0; v < variants_.size(); ++v) {
      const Graph& graph = *variants_[v].graph;
      for (size_t i = 0; i < graph.tensors.size(); ++i) {
        const Tensor& t = graph.tensors[i];
        if (!is_persistent(t.region) || is_parameter_family(t.region) || t.alias_of != kNoTensor) continue;
        uint64_t& bytes =
            places[{plan_.offset(v, TensorId(i)), std::string(name_of(t.region)) + "/" + t.name}];
        bytes = std::max(bytes, tensor_bytes(t, options_));
      }
    }
    for (auto place = places.begin(); place != places.end(); ++place) {
      const auto next = std::next(place);
      if (next != places.end() && next->first.first < place->first.first + place->second)
        add("'{}' overlaps '{}'", place->first.second, next->first.second);
    }
  }

  void check_equal_offsets() {
    std::map<std::tuple<int, std::string>, std::pair<uint64_t, size_t>> shared;
    std::array<size_t, kRoles> firsts;
    firsts.fill(variants_.size());
    for (size_t v = 0; v < variants_.size(); ++v) {
      const Graph& graph = *variants_[v].graph;
      for (size_t i = 0; i < graph.tensors.size(); ++i) {
        const Tensor& t = graph.tensors[i];
        if (!is_persistent(t.region) || t.alias_of != kNoTensor) continue;
        const std::string key = t.parameter >= 0 ? std::to_string(t.parameter) : t.name;
        const uint64_t offset = plan_.offset(v, TensorId(i));
        const auto [known, fresh] = shared.try_emplace({int(t.region), key}, offset, v);
        if (known->second.first != offset)
          add_differing(t.name, known->second.second, known->second.first, v, offset);
      }
      size_t& first = firsts[size_t(variants_[v].role)];
      if (first == variants_.size()) first = v;
      check_same_role(first, v);
    }
  }

  void add_differing(const std::string& name, size_t a, uint64_t offset_a, size_t b, uint64_t offset_b) {
    add("'{}' lies at {} in variant '{}' and at {} in variant '{}'", name, offset_a, variants_[a].name,
        offset_b, variants_[b].name);
  }

  void check_same_role(size_t a, size_t b) {
    const VariantPlan &pa = data_.variants[a], &pb = data_.variants[b];
    if (pa.offsets.size() != pb.offsets.size() || pa.workspaces.size() != pb.workspaces.size())
      return add("variants '{}' and '{}' of one role differ in size", variants_[a].name, variants_[b].name);
    for (size_t i = 0; i < pa.offsets.size(); ++i)
      if (pa.offsets[i] != pb.offsets[i] && !is_persistent(variants_[a].graph->tensors[i].region))
        add_differing(variants_[a].graph->tensors[i].name, a, pa.offsets[i], b, pb.offsets[i]);
    for (size_t i = 0; i < pa.workspaces.size(); ++i)
      if (pa.workspaces[i] != pb.workspaces[i])
        add_differing("workspace of " + variants_[a].graph->nodes[i].name, a, pa.workspaces[i], b,
                      pb.workspaces[i]);
  }

  const MemoryPlan& plan_;
  const PlanData& data_;
  std::span<const Variant> variants_;
  const PlanOptions& options_;
  uint64_t family_bytes_ = 0, largest_end_ = 0;
  std::vector<std::string> problems_;
  size_t count_ = 0;
};

}  // namespace

void validate(const MemoryPlan& plan, std::span<const Variant> variants, const PlanOptions& options) {
  Validator(plan, variants, options).run();
}

}  // namespace ren
