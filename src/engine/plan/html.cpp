// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/plan/report.h"

namespace ren {
namespace {

constexpr double kWidth = 1000, kHeight = 420, kBarHeight = 46;
constexpr size_t kLargestShown = 25;

const char* const kStyle =
    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:1060px;padding:0 "
    "1em;color:#222;background:#fff}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.8em}svg{width:100%;height:auto;background:#f4f5f7}"
    "table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}p{color:#555;max-width:50em}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}svg{background:#22252b}p{color:#"
    "aaa}}";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Neighbouring indices get hues far apart (the golden angle).
std::string colour(size_t index, int lightness) {
  return fmt::format("hsl({:.0f} 55% {}%)", std::fmod(double(index) * 137.508, 360.0), lightness);
}

std::string rectangle(double x, double y, double w, double h, const std::string& fill,
                      const std::string& title) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
      "fill=\"{}\"><title>{}</title></rect>\n",
      x, y, std::max(w, 0.3), std::max(h, 0.3), fill, escaped(title));
}

// All regions side by side, as long as they are large.
std::string region_bar(const MemoryPlan& plan, Role role) {
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"regions\">\n", kWidth, kBarHeight);
  const double scale = kWidth / double(std::max<uint64_t>(1, plan.arena_bytes()));
  for (int r = 0; r < kRegions; ++r) {
    const Extent e = plan.region(Region(r), role);
    if (e.bytes == 0) continue;
    const double x = double(e.offset) * scale, w = double(e.bytes) * scale;
    svg += rectangle(
        x, 0, w, kBarHeight, colour(size_t(r), 62),
        fmt::format("{} ({}): {}", name_of(Region(r)), long_name_of(Region(r)), bytes_text(e.bytes)));
    if (w > 16)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"28\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
                         x + w / 2, name_of(Region(r)));
  }
  return svg + "</svg>\n";
}

std::string region_table(const MemoryPlan& plan) {
  std::string html = "<table><tr><th>region</th><th></th><th class=n>bytes</th><th class=n>share</th></tr>\n";
  const auto row = [&](Region region, const Extent& e, const std::string& what) {
    if (e.bytes == 0) return;
    html += fmt::format("<tr><td>{}</td><td>{}</td><td class=n>{}</td><td class=n>{:.1f} %</td></tr>\n",
                        name_of(region), what, bytes_text(e.bytes),
                        100.0 * double(e.bytes) / double(std::max<uint64_t>(1, plan.arena_bytes())));
  };
  for (int r = 0; r < int(Region::F); ++r) row(Region(r), plan.region(Region(r)), long_name_of(Region(r)));
  for (int role = 0; role < kRoles; ++role)
    for (const Region region : {Region::F, Region::T})
      row(region, plan.region(region, Role(role)),
          fmt::format("{}, {}", long_name_of(region), name_of(Role(role))));
  return html + "</table>\n";
}

// Where the first node of backward and of the update are.
std::string phase_marks(const RolePlan& role, double node_width) {
  std::string svg;
  for (size_t i = 1; i < role.phases.size(); ++i) {
    if (role.phases[i] == role.phases[i - 1]) continue;
    const char* name = role.phases[i] == Phase::forward    ? "forward"
                       : role.phases[i] == Phase::backward ? "backward"
                                                           : "update";
    const double x = double(i) * node_width;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\" stroke=\"currentColor\" "
        "stroke-dasharray=\"4 4\"/>"
        "<text x=\"{2:.1f}\" y=\"14\" font-size=\"12\" fill=\"currentColor\">{3}</text>\n",
        x, kHeight, x + 4, name);
  }
  return svg;
}

// Time runs to the right, one column a node; addresses of F and T run upwards.
std::string lifetimes(const RolePlan& role, Role name) {
  const uint64_t base = role.regions[size_t(Region::F)].offset;
  const double scale = kHeight / double(std::max<uint64_t>(1, role.regions[size_t(Region::T)].end() - base));
  const double node_width = kWidth / double(std::max<size_t>(1, role.phases.size()));
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"lifetimes of {}\">\n",
                                kWidth, kHeight, name_of(name));
  for (size_t i = 0; i < role.blocks.size(); ++i) {
    const Block& b = role.blocks[i];
    const double height = double(b.bytes) * scale;
    svg += rectangle(b.first * node_width, kHeight - double(b.offset - base) * scale - height,
                     (b.last - b.first + 1) * node_width, height, colour(i, b.region == Region::F ? 60 : 45),
                     fmt::format("{}: {} in {}, nodes {}-{}", b.name, bytes_text(b.bytes), name_of(b.region),
                                 b.first, b.last));
  }
  return svg + phase_marks(role, node_width) + "</svg>\n";
}

std::string role_section(const RolePlan& role, Role name) {
  const auto percent = [](const LayoutQuality& q) {
    return q.lower_bound == 0 ? 0.0 : 100.0 * (double(q.bytes) / double(q.lower_bound) - 1);
  };
  return fmt::format("<h2>{}: {} nodes</h2>\n", name_of(name), role.phases.size()) + lifetimes(role, name) +
         fmt::format(
             "<p>F: {} hold {} of features ({:.2f} % above the most that is alive at once). "
             "T: {} hold {}. To the right: the nodes in the order they run; upwards: addresses. "
             "Point at a block for its name.</p>\n",
             bytes_text(role.features.bytes), bytes_text(role.features.unshared), percent(role.features),
             bytes_text(role.temporaries.bytes), bytes_text(role.temporaries.unshared));
}

std::string largest_table(const MemoryPlan& plan) {
  std::string html =
      "<h2>Largest</h2>\n<table><tr><th>tensor</th><th>region</th><th class=n>bytes</th></tr>\n";
  for (const Block& b : largest_blocks(plan, kLargestShown))
    html += fmt::format("<tr><td>{}</td><td>{}</td><td class=n>{}</td></tr>\n", escaped(b.name),
                        name_of(b.region), bytes_text(b.bytes));
  return html + "</table>\n";
}

}  // namespace

std::string html(const MemoryPlan& plan) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Memory "
      "plan</title>\n<style>{}</style></head>\n"
      "<body>\n<h1>Memory plan: {}</h1>\n",
      kStyle, bytes_text(plan.arena_bytes()));
  page += region_bar(plan, largest_role(plan)) + region_table(plan);
  for (int r = 0; r < kRoles; ++r)
    if (plan.data().roles[size_t(r)].present) page += role_section(plan.data().roles[size_t(r)], Role(r));
  return page + largest_table(plan) + "</body></html>\n";
}

}  // namespace ren
