// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "engine/base/status.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/role_layout.h"
#include "engine/plan/slot.h"

namespace ren {
namespace {

// A tensor outside F, T and the families: one for all variants that name it.
struct SharedTensor {
  Region region;
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t bytes;
  uint64_t offset = 0;  // in the arena, once laid out
};

class Planner {
 public:
  Planner(std::span<const Variant> variants, const PlanOptions& options)
      : variants_(variants), options_(options) {}

  PlanData run() {
    check_arguments();
    lay_out_slots();
    for (const Variant& v : variants_) collect_shared(v);
    lay_out_persistent();
    make_variants();
    for (int role = 0; role < kRoles; ++role) add_role(Role(role));
    return std::move(data_);
  }

 private:
  void check_arguments() {
    require(!variants_.empty(), "a memory plan needs at least one variant");
    const auto& parameters = variants_[0].graph->parameters;
    for (const Variant& v : variants_) {
      trains_ |= v.role == Role::step || v.role == Role::accumulate;
      require(!v.choices || v.choices->nodes.size() == v.graph->nodes.size(),
              "variant '{}' has {} nodes but choices for {}", v.name, v.graph->nodes.size(),
              v.choices ? v.choices->nodes.size() : 0);
      require(v.graph->parameters.size() == parameters.size(), "variant '{}' has {} parameters, '{}' has {}",
              v.name, v.graph->parameters.size(), variants_[0].name, parameters.size());
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& p = v.graph->parameters[i];
        require(p.name == parameters[i].name && p.shape == parameters[i].shape,
                "parameter {} is '{}' {} in variant '{}' and '{}' {} in '{}'", i, p.name, to_string(p.shape),
                v.name, parameters[i].name, to_string(parameters[i].shape), variants_[0].name);
      }
    }
    require(!options_.compute_copies || is_16bit(options_.compute_type), "compute copies are {}, not 16-bit",
            name_of(options_.compute_type));
  }

  void lay_out_slots() {
    const auto& parameters = variants_[0].graph->parameters;
    std::vector<int32_t> order = options_.slot_order;
    if (order.empty()) order.resize(parameters.size()), std::iota(order.begin(), order.end(), 0);
    std::vector<bool> images(parameters.size(), false), seen(parameters.size(), false);
    for (const Variant& v : variants_) {
      const std::vector<bool> found = parameters_that_meet_images(*v.graph);
      for (size_t i = 0; i < images.size(); ++i) images[i] = images[i] || found[i];
    }
    require(order.size() == parameters.size(), "the slot order has {} entries for {} parameters",
            order.size(), parameters.size());
    for (const int32_t p : order) {
      require(p >= 0 && size_t(p) < parameters.size() && !seen[size_t(p)],
              "the slot order names parameter {} twice or it does not exist", p);
      seen[size_t(p)] = true;
      const uint64_t elements = padded_elements(parameters[size_t(p)], options_, images[size_t(p)]);
      data_.slots.push_back({p, family_bytes_, elements});
      family_bytes_ += slot_bytes(DType::f32, elements);
    }
  }

  bool exists(Region region) const {
    switch (region) {
      case Region::E:
        return options_.ema;
      case Region::A:
        return options_.compute_copies;
      case Region::G:
        return trains_;
      case Region::M:
        return options_.first_moments;
      case Region::V:
        return options_.second_moments;
      case Region::N:
        return options_.norms;
      default:
        return true;
    }
  }

  void check_region(const Variant& v, const Tensor& t) const {
    require(exists(t.region), "variant '{}': tensor '{}' lies in region {}, which this plan leaves out",
            v.name, t.name, name_of(t.region));
    if (!is_parameter_family(t.region)) return;
    require(t.parameter >= 0 && size_t(t.parameter) < data_.slots.size(),
            "variant '{}': tensor '{}' in region {} belongs to no parameter", v.name, t.name,
            name_of(t.region));
    const DType type = t.region == Region::A ? options_.compute_type : DType::f32;
    require(t.dtype == type, "variant '{}': tensor '{}' in region {} is {}, not {}", v.name, t.name,
            name_of(t.region), name_of(t.dtype), name_of(type));
    const Shape& shape = v.graph->parameters[size_t(t.parameter)].shape;
    require(t.shape.elements() == shape.elements(),
            "variant '{}': tensor '{}' {} in region {} has not its parameter's size {}", v.name, t.name,
            to_string(t.shape), name_of(t.region), to_string(shape));
  }

  static bool is_shared(const Tensor& t) {
    return t.alias_of == kNoTensor && t.region != Region::F && t.region != Region::T &&
           !is_parameter_family(t.region);
  }

  SharedTensor* find_shared(const Tensor& t) {
    const auto found = std::find_if(shared_.begin(), shared_.end(), [&](const SharedTensor& s) {
      return s.region == t.region && s.name == t.name;
    });
    return found == shared_.end() ? nullptr : &*found;
  }

  // In the order of first appearance. What a later variant adds comes after what precedes it there, so
  // that each input slot stays in one piece.
  void collect_shared(const Variant& v) {
    std::array<size_t, kRegions> next{};  // where an unknown tensor would go, by region
    std::vector<std::string> names;
    for (const Tensor& t : v.graph->tensors) {
      check_region(v, t);
      if (!is_shared(t)) continue;
      names.push_back(std::string(name_of(t.region)) + "/" + t.name);
      size_t& position = next[size_t(t.region)];
      const uint64_t bytes = tensor_bytes(t, options_);
      if (SharedTensor* known = find_shared(t)) {
        merge_shared(v, t, bytes, *known);
        position = size_t(known - shared_.data()) + 1;
        continue;
      }
      shared_.insert(shared_.begin() + ptrdiff_t(position), {t.region, t.name, t.dtype, t.shape, bytes});
      for (size_t& p : next)
        if (&p != &position && p > position) ++p;
      ++position;
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    require(twice == names.end(), "variant '{}' has two tensors '{}'", v.name,
            twice == names.end() ? "" : *twice);
  }

  void merge_shared(const Variant& v, const Tensor& t, uint64_t bytes, SharedTensor& known) const {
    require(t.dtype == known.dtype, "tensor '{}' in region {} is {} in variant '{}' and {} before", t.name,
            name_of(t.region), name_of(t.dtype), v.name, name_of(known.dtype));
    require(t.region == Region::I || t.region == Region::R || t.shape == known.shape,
            "tensor '{}' in region {} is {} in variant '{}' and {} before", t.name, name_of(t.region),
            to_string(t.shape), v.name, to_string(known.shape));
    known.bytes = std::max(known.bytes, bytes);
  }

  void lay_out_persistent() {
    uint64_t offset = 0;
    std::array<Extent, kRegions> regions{};
    for (int r = 0; r < int(Region::F); ++r) {
      const Region region = Region(r);
      const uint64_t begin = offset;
      if (is_parameter_family(region) && exists(region))
        offset += region == Region::A ? family_bytes_ / 2 : family_bytes_;
      if (region == Region::W) list_parameters(begin);
      if (region == Region::N && exists(region)) {
        const uint64_t bytes = slot_bytes(DType::f32, kNormsPerSlot * data_.slots.size());
        data_.persistent.push_back({"norms", region, offset, bytes});
        offset += bytes;
      }
      for (SharedTensor& s : shared_) {
        if (s.region != region) continue;
        s.offset = offset;
        data_.persistent.push_back({s.name, region, offset, s.bytes});
        offset += s.bytes;
      }
      regions[size_t(r)] = {begin, offset - begin};
    }
    regions[size_t(Region::F)] = regions[size_t(Region::T)] = {offset, 0};
    for (RolePlan& role : data_.roles) role.regions = regions;
    data_.arena_bytes = offset;
  }

  void list_parameters(uint64_t begin) {
    for (const Slot& s : data_.slots)
      data_.persistent.push_back({variants_[0].graph->parameters[size_t(s.parameter)].name, Region::W,
                                  begin + s.offset, slot_bytes(DType::f32, s.elements)});
  }

  // Everything but F and T.
  void make_variants() {
    std::vector<uint64_t> slot_of(data_.slots.size());
    for (const Slot& s : data_.slots) slot_of[size_t(s.parameter)] = s.offset;
    for (const Variant& v : variants_) {
      VariantPlan plan{v.name, v.role, std::vector<uint64_t>(v.graph->tensors.size(), kNone),
                       std::vector<uint64_t>(v.graph->nodes.size(), kNone)};
      for (size_t i = 0; i < plan.offsets.size(); ++i) {
        const Tensor& t = v.graph->at(v.graph->storage(TensorId(i)));
        require(t.region == v.graph->tensors[i].region,
                "variant '{}': '{}' aliases a tensor of another region", v.name, v.graph->tensors[i].name);
        const uint64_t base = data_.roles[0].regions[size_t(t.region)].offset;
        if (is_parameter_family(t.region)) {
          plan.offsets[i] = base + slot_of[size_t(t.parameter)] / (t.region == Region::A ? 2 : 1);
        } else if (is_shared(t)) {
          plan.offsets[i] = find_shared(t)->offset;
        }
      }
      data_.variants.push_back(std::move(plan));
    }
  }

  void add_role(Role role) {
    std::vector<const Variant*> members;
    for (const Variant& v : variants_)
      if (v.role == role) members.push_back(&v);
    if (members.empty()) return;
    RolePlan& plan = data_.roles[size_t(role)];
    RoleLayout layout = lay_out_role(members, options_, plan.regions[size_t(Region::F)].offset);
    plan.present = true;
    for (const Node& node : members[0]->graph->nodes) plan.phases.push_back(node.phase);
    plan.regions[size_t(Region::F)] = layout.features;
    plan.regions[size_t(Region::T)] = layout.temporaries;
    plan.features = std::move(layout.feature_quality);
    plan.temporaries = std::move(layout.temporary_quality);
    plan.blocks = std::move(layout.blocks);
    data_.arena_bytes = std::max(data_.arena_bytes, layout.temporaries.end());
    for (VariantPlan& v : data_.variants) {
      if (v.role != role) continue;
      v.workspaces = layout.workspaces;
      for (size_t i = 0; i < v.offsets.size(); ++i)
        if (layout.offsets[i] != kNone) v.offsets[i] = layout.offsets[i];
    }
  }

  std::span<const Variant> variants_;
  const PlanOptions& options_;
  bool trains_ = false;
  uint64_t family_bytes_ = 0;  // of W
  std::vector<SharedTensor> shared_;
  PlanData data_;
};

}  // namespace

MemoryPlan plan_memory(std::span<const Variant> variants, const PlanOptions& options) {
  return MemoryPlan(Planner(variants, options).run());
}

}  // namespace ren
