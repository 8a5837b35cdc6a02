// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pack.h"

#include <algorithm>
#include <numeric>

namespace ren {
namespace {

enum class Fit { first, best };

struct Placed {
  uint64_t offset, end;
  int32_t first, last;
};

constexpr uint64_t kTooHigh = ~uint64_t{0};
// Comparisons that repairs may cost in all: bounds the time without looking at a clock, since the
// result must be the same everywhere.
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

  void find_lower_bound() {
    int32_t end = 0;
    for (const Interval& i : intervals_) end = std::max(end, i.last + 1), unshared_ += i.bytes;
    live_.assign(size_t(end) + 1, 0);
    std::vector<uint64_t> dying(size_t(end) + 1, 0);
    for (const Interval& i : intervals_) live_[size_t(i.first)] += i.bytes, dying[size_t(i.last) + 1] += i.bytes;
    for (size_t t = 1; t < live_.size(); ++t) live_[t] += live_[t - 1] - dying[t];
    lower_bound_ = *std::max_element(live_.begin(), live_.end());
  }

  // Lowest (or tightest) gap between those already placed that are alive at the same time.
  uint64_t find_offset(const Interval& wanted, Fit fit) const {
    uint64_t floor = 0, best_gap = kTooHigh, best_offset = kTooHigh;
    for (const Placed& p : placed_) {
      if (p.last < wanted.first || p.first > wanted.last) continue;
      if (p.offset > floor && p.offset - floor >= wanted.bytes) {
        if (fit == Fit::first) return floor;
        if (p.offset - floor < best_gap) best_gap = p.offset - floor, best_offset = floor;
      }
      floor = std::max(floor, p.end);
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
      const Placed entry{offset, end, wanted.first, wanted.last};
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), entry,
                                      [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                     entry);
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

  template <typename Key>
  Order sorted(Key key) const {
    Order order(intervals_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const auto ka = key(intervals_[size_t(a)]), kb = key(intervals_[size_t(b)]);
      if (ka != kb) return ka > kb;
      return intervals_[size_t(a)].bytes > intervals_[size_t(b)].bytes;
    });
    return order;
  }

  bool optimal() const { return best_.bytes == lower_bound_; }

  void attempt(const Order& order, const std::string& name) {
    if (!optimal() && place(order, Fit::best)) keep(order, Fit::best, name + ", best fit");
    if (!optimal() && place(order, Fit::first)) keep(order, Fit::first, name + ", first fit");
  }

  void try_orders() {
    const auto duration = [](const Interval& i) { return uint64_t(i.last - i.first) + 1; };
    attempt(sorted([](const Interval& i) { return i.bytes; }), "by size");
    attempt(sorted(duration), "by lifetime");
    attempt(sorted([&](const Interval& i) { return i.bytes * duration(i); }), "by size x lifetime");
    attempt(sorted([](const Interval& i) { return -int64_t(i.first); }), "by time");
    attempt(sorted([](const Interval& i) { return int64_t(i.last); }), "by time, backwards");
    // Those alive at the fullest moment first, where there is no room to waste.
    attempt(sorted([&](const Interval& i) {
              return *std::max_element(live_.begin() + i.first, live_.begin() + i.last + 1);
            }),
            "by pressure");
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
  std::vector<uint64_t> live_;        // by time
  uint64_t lower_bound_ = 0, unshared_ = 0;

  std::vector<Placed> placed_;        // by offset
  std::vector<uint64_t> offsets_;
  uint64_t height_ = 0;
  int32_t culprit_ = 0;

  Packing best_;
  Order best_order_;
  Fit best_fit_ = Fit::best;
};

}  // namespace

Packing pack(std::span<const Interval> intervals) { return Packer(intervals).run(); }

}  // namespace ren
