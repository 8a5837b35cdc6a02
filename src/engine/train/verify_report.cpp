// SPDX-License-Identifier: Apache-2.0
// What a verification found, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "engine/train/verify.h"

namespace ren {
namespace {

constexpr size_t kFailuresShown = 20;
// Judged by a peer of one replay, another replay of PyTorch's own fails in more than half of our parity
// cases; of 4 replays, in a quarter; of 16, in one of twenty.
constexpr int64_t kReplaysAdvised = 16;

// Larger is worse; NaN is worst.
bool better(const Comparison& a, const Comparison& b) {
  if (std::isnan(a.ratio())) return false;
  return std::isnan(b.ratio()) || a.ratio() < b.ratio();
}

nlohmann::json json_number(double v) {
  return std::isfinite(v) ? nlohmann::json(v) : nlohmann::json(fmt::format("{}", v));
}

nlohmann::json json_of(const Comparison& c) {
  nlohmann::json j = {{"group", name_of(c.group)},
                      {"tensor", c.tensor},
                      {"error", json_number(c.error)},
                      {"bound", json_number(c.bound)},
                      {"ratio", json_number(c.ratio())}};
  if (!c.peer_error) return j;
  j["tolerance_bound"] = json_number(c.tolerance_bound);
  j["peer_error"] = *c.peer_error;
  j["needs_peer"] = c.needs_peer();
  return j;
}

std::string bounds_text(const Comparison& c, std::string_view format) {
  const auto number = [&](double value) { return fmt::format(fmt::runtime(format), value); };
  std::string text = fmt::format("error {}, bound {}", number(c.error), number(c.bound));
  if (c.peer_error)
    text += fmt::format(": by tolerance {}, PyTorch's error {}", number(c.tolerance_bound),
                        number(*c.peer_error));
  return text;
}

}  // namespace

const char* name_of(VerifyGroup group) {
  switch (group) {
    case VerifyGroup::evaluation:
      return "evaluation";
    case VerifyGroup::output:
      return "output";
    case VerifyGroup::loss:
      return "loss";
    case VerifyGroup::gradient:
      return "gradient";
    case VerifyGroup::parameter:
      return "parameter";
    case VerifyGroup::change:
      return "change";
    case VerifyGroup::buffer:
      return "statistic";
  }
  return "?";
}

bool VerifyResult::passed() const {
  return !comparisons.empty() &&
         std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.passes(); });
}

size_t VerifyResult::needed_peer() const {
  return size_t(std::count_if(comparisons.begin(), comparisons.end(),
                              [](const Comparison& c) { return c.needs_peer(); }));
}

std::string VerifyResult::text() const {
  std::string out = fmt::format("{}: {} on {}, tolerance {:g}\n", case_name.empty() ? "golden" : case_name,
                                ren::name_of(precision), device, tolerance);
  if (peer)
    out += fmt::format("or within {:g} times the error of torch {} on {} ({} replay{})\n", kPeerFactor,
                       peer->torch, peer->device, peer->replays, peer->replays == 1 ? "" : "s");
  for (int g = 0; g < kVerifyGroups; ++g) {
    const Comparison* worst = nullptr;
    size_t count = 0;
    for (const Comparison& c : comparisons) {
      if (int(c.group) != g) continue;
      ++count;
      if (worst == nullptr || better(*worst, c)) worst = &c;
    }
    if (worst == nullptr) continue;
    out +=
        fmt::format("  {:<10} {:>4} compared, worst {:.3g} of its bound ({}): {}\n", name_of(VerifyGroup(g)),
                    count, worst->ratio(), bounds_text(*worst, "{:.2e}"), worst->tensor);
  }
  size_t failures = 0;
  for (const Comparison& c : comparisons)
    if (!c.passes() && ++failures <= kFailuresShown)
      out += fmt::format("FAILED {} '{}': {}\n", name_of(c.group), c.tensor, bounds_text(c, "{:.3e}"));
  if (failures > kFailuresShown) out += fmt::format("FAILED {} more\n", failures - kFailuresShown);
  if (peer)
    out += fmt::format("{} of {} comparisons passed only because PyTorch is as far off\n", needed_peer(),
                       comparisons.size());
  if (peer && !passed() && peer->replays < kReplaysAdvised)
    out += fmt::format(
        "which values rounding moves across a kink is chance: a peer of more replays (--replays {}) tells "
        "better "
        "what PyTorch may be off by\n",
        kReplaysAdvised);
  for (const std::string& note : notes) out += "note: " + note + "\n";
  out += passed() ? "passed\n" : "failed\n";
  return out;
}

nlohmann::json VerifyResult::json() const {
  nlohmann::json j = {{"event", "verify"},        {"case", case_name},
                      {"device", device},         {"precision", ren::name_of(precision)},
                      {"tolerance", tolerance},   {"passed", passed()},
                      {"loss_scale", loss_scale}, {"notes", notes}};
  if (peer)
    j["peer"] = {{"torch", peer->torch},
                 {"device", peer->device},
                 {"replays", peer->replays},
                 {"factor", kPeerFactor},
                 {"needed", needed_peer()}};
  j["groups"] = nlohmann::json::object();
  j["failures"] = nlohmann::json::array();
  j["comparisons"] = nlohmann::json::array();
  std::map<std::string, std::pair<size_t, const Comparison*>> groups;
  for (const Comparison& c : comparisons) {
    auto& [count, worst] = groups[name_of(c.group)];
    ++count;
    if (worst == nullptr || better(*worst, c)) worst = &c;
    j["comparisons"].push_back(json_of(c));
    if (!c.passes()) j["failures"].push_back(j["comparisons"].back());
  }
  for (const auto& [name, group] : groups)
    j["groups"][name] = {{"count", group.first}, {"worst", json_of(*group.second)}};
  return j;
}

}  // namespace ren
