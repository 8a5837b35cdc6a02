// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace ren {
namespace {

enum class Fit { first, best };

// What has been placed, by offset. Lifetimes lie apart so that one vectorised pass finds those that meet.
struct PlacedList {
  std::vector<int32_t> firsts, lasts;
  std::vector<uint64_t> offsets, ends;
  std::vector<uint8_t> meets;

  void clear() { firsts.clear(), lasts.clear(), offsets.clear(), ends.clear(); }

  void insert(const Interval& interval, uint64_t offset) {
    const ptrdiff_t at = std::upper_bound(offsets.begin(), offsets.end(), offset) - offsets.begin();
    firsts.insert(firsts.begin() + at, interval.first);
    lasts.insert(lasts.begin() + at, interval.last);
    offsets.insert(offsets.begin() + at, offset);
    ends.insert(ends.begin() + at, offset + interval.bytes);
  }

  void mark_meeting(const Interval& interval) {
    const size_t n = offsets.size();
    meets.resize((n + 7) / 8 * 8 + 8);
    std::fill(meets.begin() + ptrdiff_t(n), meets.end(), uint8_t{0});
    const int32_t *first = firsts.data(), *last = lasts.data();
    uint8_t* meet = meets.data();
    for (size_t i = 0; i < n; ++i)
      meet[i] = uint8_t((first[i] <= interval.last) & (last[i] >= interval.first));
  }

  // The next marked entry at or after i; offsets.size() or beyond: none.
  size_t next_meeting(size_t i) const {
    const size_t n = offsets.size();
    for (; i < n && i % 8 != 0; ++i)
      if (meets[i]) return i;
    for (uint64_t word; i < n; i += 8) {
      std::memcpy(&word, &meets[i], 8);
      if (word == 0) continue;
      while (!meets[i]) ++i;
      return i;
    }
    return n;
  }
};

constexpr uint64_t kTooHigh = ~uint64_t{0};
// Comparisons after which no further order is tried, and those that repairs may cost in all: they bound
// the time without looking at a clock, since the result must be the same everywhere.
constexpr uint64_t kOrderWork = 16'000'000;
constexpr uint64_t kRepairWork = 12'000'000;
constexpr uint64_t kRepairs = 48;

class Packer {
 public:
  explicit Packer(std::span<const Interval> intervals) : intervals_(intervals) {
    best_.bytes = kTooHigh;
    find_lower_bound();
  }

  Packing run() {
    try_orders();
    repair();
    best_.lower_bound = lower_bound_;
    best_.unshared = unshared_;
    return std::move(best_);
  }

 private:
  using Order = std::vector<int32_t>;
  using Key = std::function<int64_t(const Interval&)>;

  void find_lower_bound() {
    int32_t end = 0;
    for (const Interval& i : intervals_) end = std::max(end, i.last + 1), unshared_ += i.bytes;
    live_.assign(size_t(end) + 1, 0);
    std::vector<uint64_t> dying(size_t(end) + 1, 0);
    for (const Interval& i : intervals_)
      live_[size_t(i.first)] += i.bytes, dying[size_t(i.last) + 1] += i.bytes;
    for (size_t t = 1; t < live_.size(); ++t) live_[t] += live_[t - 1] - dying[t];
    lower_bound_ = *std::max_element(live_.begin(), live_.end());
  }

  // Lowest (or tightest) gap between those already placed that are alive at the same time.
  uint64_t find_offset(const Interval& wanted, Fit fit) {
    placed_.mark_meeting(wanted);
    work_ += placed_.offsets.size();
    uint64_t floor = 0, best_gap = kTooHigh, best_offset = kTooHigh;
    const size_t n = placed_.offsets.size();
    for (size_t i = placed_.next_meeting(0); i < n; i = placed_.next_meeting(i + 1)) {
      const uint64_t offset = placed_.offsets[i];
      if (offset > floor && offset - floor >= wanted.bytes) {
        if (fit == Fit::first) return floor;
        if (offset - floor < best_gap) best_gap = offset - floor, best_offset = floor;
      }
      floor = std::max(floor, placed_.ends[i]);
    }
    return best_offset != kTooHigh ? best_offset : floor;
  }

  // False, with the culprit, as soon as it gets no lower than the best so far.
  bool place(const Order& order, Fit fit) {
    placed_.clear();
    offsets_.assign(intervals_.size(), 0);
    height_ = 0;
    for (const int32_t index : order) {
      const Interval& wanted = intervals_[size_t(index)];
      const uint64_t offset = find_offset(wanted, fit);
      const uint64_t end = offset + wanted.bytes;
      if (end >= best_.bytes) return culprit_ = index, false;
      height_ = std::max(height_, end);
      offsets_[size_t(index)] = offset;
      placed_.insert(wanted, offset);
    }
    return true;
  }

  void keep(const Order& order, Fit fit, std::string method) {
    best_.bytes = height_;
    best_.offsets = offsets_;
    best_.method = std::move(method);
    best_order_ = order;
    best_fit_ = fit;
  }

  // By decreasing key, then size.
  Order sorted(const Key& key) const {
    Order order(intervals_.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<int64_t> keys;
    for (const Interval& i : intervals_) keys.push_back(key(i));
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if (keys[size_t(a)] != keys[size_t(b)]) return keys[size_t(a)] > keys[size_t(b)];
      return intervals_[size_t(a)].bytes > intervals_[size_t(b)].bytes;
    });
    return order;
  }

  bool optimal() const { return best_.bytes == lower_bound_; }

  // Orders that suit different graphs; a deep stack of saved activations packs best by time.
  void try_orders() {
    const auto duration = [](const Interval& i) { return int64_t(i.last - i.first) + 1; };
    // Those alive at the fullest moment come first, where there is no room to waste.
    const auto pressure = [&](const Interval& i) {
      return int64_t(*std::max_element(live_.begin() + i.first, live_.begin() + i.last + 1));
    };
    const std::pair<const char*, Key> heuristics[] = {
        {"by size", [](const Interval& i) { return int64_t(i.bytes); }},
        {"by time", [](const Interval& i) { return -int64_t(i.first); }},
        {"by time, backwards", [](const Interval& i) { return int64_t(i.last); }},
        {"by size x lifetime", [&](const Interval& i) { return int64_t(i.bytes) * duration(i); }},
        {"by lifetime", duration},
        {"by pressure", pressure},
    };
    for (const Fit fit : {Fit::best, Fit::first})
      for (const auto& [name, key] : heuristics) {
        if (optimal() || work_ > kOrderWork) return;
        const Order order = sorted(key);
        if (place(order, fit))
          keep(order, fit, fmt::format("{}, {} fit", name, fit == Fit::best ? "best" : "first"));
      }
  }

  // The block that did not fit comes before all others, and again.
  void repair() {
    const uint64_t n = intervals_.size();
    const uint64_t repairs = std::min(kRepairs, kRepairWork / std::max<uint64_t>(1, n * n / 2));
    Order order = best_order_;
    const std::string method = best_.method + ", repaired";
    for (uint64_t i = 0; i < repairs && !optimal(); ++i) {
      if (place(order, best_fit_)) {
        keep(order, best_fit_, method);
      } else {
        const auto at = std::find(order.begin(), order.end(), culprit_);
        std::rotate(order.begin(), at, at + 1);
      }
    }
  }

  std::span<const Interval> intervals_;
  std::vector<uint64_t> live_;  // by time
  uint64_t lower_bound_ = 0, unshared_ = 0;

  PlacedList placed_;
  std::vector<uint64_t> offsets_;
  uint64_t height_ = 0, work_ = 0;
  int32_t culprit_ = 0;

  Packing best_;
  Order best_order_;
  Fit best_fit_ = Fit::best;
};

}  // namespace

Packing pack(std::span<const Interval> intervals) { return Packer(intervals).run(); }

}  // namespace ren
