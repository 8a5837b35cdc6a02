// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/status.h"

namespace ren {
namespace {

constexpr size_t kLargestShown = 10;

std::string quality_text(const char* region, const LayoutQuality& q) {
  if (q.bytes == 0) return fmt::format("  {}  empty\n", region);
  return fmt::format("  {}  {} bytes for {} ({:.2f} x reused), at least {} ({:.2f} % above), {}\n", region,
                     q.bytes, q.unshared, double(q.unshared) / double(q.bytes), q.lower_bound,
                     100.0 * (double(q.bytes) / double(q.lower_bound) - 1), q.method);
}

std::string block_text(const Block& b) {
  std::string text = fmt::format("  {:>12} {} {}", b.bytes, name_of(b.region), b.name);
  if (b.region == Region::F || b.region == Region::T) text += fmt::format(", nodes {}-{}", b.first, b.last);
  return text + "\n";
}

nlohmann::json json_of(const LayoutQuality& q) {
  return {{"bytes", q.bytes}, {"unshared", q.unshared}, {"lower_bound", q.lower_bound}, {"method", q.method}};
}

nlohmann::json json_of(const Block& b, bool lifetime) {
  nlohmann::json j = {
      {"name", b.name}, {"region", name_of(b.region)}, {"offset", b.offset}, {"bytes", b.bytes}};
  if (lifetime) j["first"] = b.first, j["last"] = b.last;
  return j;
}

nlohmann::json json_of_regions(const std::array<Extent, kRegions>& regions, int begin, int end) {
  nlohmann::json list = nlohmann::json::array();
  for (int r = begin; r < end; ++r)
    list.push_back({{"region", name_of(Region(r))},
                    {"name", long_name_of(Region(r))},
                    {"offset", regions[size_t(r)].offset},
                    {"bytes", regions[size_t(r)].bytes}});
  return list;
}

nlohmann::json json_of(const RolePlan& role, Role name) {
  nlohmann::json blocks = nlohmann::json::array();
  for (const Block& b : role.blocks) blocks.push_back(json_of(b, true));
  return {{"role", name_of(name)},
          {"nodes", role.phases.size()},
          {"regions", json_of_regions(role.regions, int(Region::F), kRegions)},
          {"F", json_of(role.features)},
          {"T", json_of(role.temporaries)},
          {"blocks", blocks}};
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit < 3) value /= 1024, ++unit;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

const char* long_name_of(Region region) {
  switch (region) {
#define REN_REGION(letter, name, family, content) \
  case Region::letter:                            \
    return #name;
#include "engine/ir/region_list.def"
#undef REN_REGION
  }
  return "?";
}

Role largest_role(const MemoryPlan& plan) {
  Role best = Role::step;
  for (int r = 0; r < kRoles; ++r)
    if (plan.region(Region::T, Role(r)).end() > plan.region(Region::T, best).end()) best = Role(r);
  return best;
}

std::vector<Block> largest_blocks(const MemoryPlan& plan, size_t count) {
  std::vector<Block> blocks = plan.data().persistent;
  const std::vector<Block>& planned = plan.data().roles[size_t(largest_role(plan))].blocks;
  blocks.insert(blocks.end(), planned.begin(), planned.end());
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  blocks.resize(std::min(count, blocks.size()));
  return blocks;
}

std::string MemoryPlan::dump() const {
  std::string text = fmt::format("memory plan: {} bytes ({}), {} slots\n", data_.arena_bytes,
                                 bytes_text(data_.arena_bytes), data_.slots.size());
  for (const VariantPlan& v : data_.variants)
    text += fmt::format("variant '{}': {}\n", v.name, name_of(v.role));
  for (int r = 0; r < int(Region::F); ++r) {
    const Extent e = data_.roles[0].regions[size_t(r)];
    text += fmt::format("{}  {:>12} +{:<12} {}\n", name_of(Region(r)), e.offset, e.bytes,
                        long_name_of(Region(r)));
  }
  for (int r = 0; r < kRoles; ++r) {
    const RolePlan& role = data_.roles[size_t(r)];
    if (!role.present) continue;
    text += fmt::format("role {}: {} nodes, {} blocks\n", name_of(Role(r)), role.phases.size(),
                        role.blocks.size());
    for (const Region region : {Region::F, Region::T}) {
      const Extent e = role.regions[size_t(region)];
      text +=
          fmt::format("{}  {:>12} +{:<12} {}\n", name_of(region), e.offset, e.bytes, long_name_of(region));
    }
    text += quality_text("F", role.features) + quality_text("T", role.temporaries);
  }
  text += "largest:\n";
  for (const Block& b : largest_blocks(*this, kLargestShown)) text += block_text(b);
  return text;
}

nlohmann::json MemoryPlan::json() const {
  nlohmann::json slots = nlohmann::json::array(), variants = nlohmann::json::array(),
                 roles = nlohmann::json::array(), persistent = nlohmann::json::array();
  for (const Slot& s : data_.slots)
    slots.push_back({{"parameter", s.parameter}, {"offset", s.offset}, {"elements", s.elements}});
  for (const VariantPlan& v : data_.variants)
    variants.push_back({{"name", v.name}, {"role", name_of(v.role)}});
  for (int r = 0; r < kRoles; ++r)
    if (data_.roles[size_t(r)].present) roles.push_back(json_of(data_.roles[size_t(r)], Role(r)));
  for (const Block& b : data_.persistent) persistent.push_back(json_of(b, false));
  return {{"arena_bytes", data_.arena_bytes},
          {"regions", json_of_regions(data_.roles[0].regions, 0, int(Region::F))},
          {"slots", slots},
          {"variants", variants},
          {"roles", roles},
          {"tensors", persistent}};
}

std::string explain_shortage(const MemoryPlan& plan, uint64_t available) {
  const Role role = largest_role(plan);
  std::vector<Region> regions;
  for (int r = 0; r < kRegions; ++r)
    if (plan.region(Region(r), role).bytes > 0) regions.push_back(Region(r));
  std::stable_sort(regions.begin(), regions.end(), [&](Region a, Region b) {
    return plan.region(a, role).bytes > plan.region(b, role).bytes;
  });
  std::string text = fmt::format("the plan needs {}, {} are available; most goes to",
                                 bytes_text(plan.arena_bytes()), bytes_text(available));
  for (size_t i = 0; i < std::min<size_t>(4, regions.size()); ++i) {
    text += fmt::format("{} {} {} ({}", i == 0 ? "" : ",", name_of(regions[i]),
                        bytes_text(plan.region(regions[i], role).bytes), long_name_of(regions[i]));
    if (regions[i] == Region::F || regions[i] == Region::T) text += fmt::format(" of role {}", name_of(role));
    text += ")";
  }
  text += "; largest single tensors:";
  bool first = true;
  for (const Block& b : largest_blocks(plan, 5)) {
    text += fmt::format("{} {} ({} in {})", first ? "" : ",", b.name, bytes_text(b.bytes), name_of(b.region));
    first = false;
  }
  return text;
}

}  // namespace ren
