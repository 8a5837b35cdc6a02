// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "engine/base/half.h"
#include "engine/ops/support/kernel.h"
#include "engine/ops/support/vector_cpu.h"
#include "engine/range/range.h"

namespace ren {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at least
constexpr int64_t kBlock = 1 << 12;  // elements updated and copied while they are in cache

enum Input : size_t { kLearningRate, kMomentum, kWeightDecay, kOverflow, kTrust };

struct Rates {
  float rate, momentum, decay, ratio;
};

REN_CLONES void step_plain(float* w, const float* g, const Rates& r, int64_t count) {
  for (int64_t i = 0; i < count; ++i) w[i] -= r.rate * (r.ratio * (g[i] + r.decay * w[i]));
}

REN_CLONES void step_momentum(float* w, const float* g, float* m, const Rates& r, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    m[i] = r.momentum * m[i] + r.ratio * (g[i] + r.decay * w[i]);
    w[i] -= r.rate * m[i];
  }
}

REN_CLONES void step_nesterov(float* w, const float* g, float* m, const Rates& r, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float d = r.ratio * (g[i] + r.decay * w[i]);
    m[i] = r.momentum * m[i] + d;
    w[i] -= r.rate * (d + r.momentum * m[i]);
  }
}

// In double: squares of small gradients underflow in FP32.
REN_CLONES double sum_of_squares(const float* x, int64_t count) {
  Doubles lanes{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    HalfFloats v;
    REN_LOAD(v, x + i);
    const Doubles d = __builtin_convertvector(v, Doubles);
    lanes += d * d;
  }
  double sum = 0;
  for (; i < count; ++i) sum += double(x[i]) * double(x[i]);
  for (int64_t k = 0; k < 8; ++k) sum += lanes[k];
  return sum;
}

struct SquaredNorms {
  double w = 0, g = 0;
};

// One update over all segments that train. Their elements are numbered through, so that
// threads get equal shares whatever the sizes of the segments.
class Optimizer final : public Kernel {
 public:
  Optimizer(const BindContext& context, bool lars)
      : a_(context.node.as<OptimizerAttributes>()),
        w_(region(context, Region::W)),
        g_(region(context, Region::G)),
        m_(a_.use_momentum ? region(context, Region::M) : nullptr),
        copies_(a_.has_copy ? context.regions[size_t(Region::A)].base : nullptr) {
    for (size_t i = 0; i < 5; ++i) scalars_[i] = input_as<float>(context, i);
    starts_.push_back(0);
    for (const Segment& s : context.segments) {
      if ((s.flags & kFrozen) != 0 || s.elements == 0) continue;
      segments_.push_back(s);
      starts_.push_back(starts_.back() + int64_t(s.elements));
      uses_norms_ |= lars && (s.flags & kLars) != 0;
    }
    ratios_.assign(segments_.size(), 1.0f);
    if (!uses_norms_) return;
    parts_ = parallel_parts(starts_.back(), kGrain);
    norms_.resize(size_t(parts_) * segments_.size());
  }

  void launch() noexcept override {
    if (scalars_[kOverflow] && *scalars_[kOverflow] != 0) return;
    if (uses_norms_) measure();
    parallel_for(starts_.back(), kGrain, [this](int, int64_t begin, int64_t end) {
      for_each_piece(begin, end, [this](size_t s, int64_t first, int64_t count) { update(s, first, count); });
    });
  }

 private:
  static float* region(const BindContext& context, Region region) {
    return reinterpret_cast<float*>(context.regions[size_t(region)].base);
  }

  // Calls body(segment, its first element, count) for the numbered elements [begin, end).
  template <typename Body>
  void for_each_piece(int64_t begin, int64_t end, const Body& body) const {
    auto s = size_t(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1);
    for (; begin < end; ++s) {
      const int64_t stop = std::min(end, starts_[s + 1]);
      body(s, begin - starts_[s], stop - begin);
      begin = stop;
    }
  }

  int64_t position(size_t s, int64_t first) const {
    return int64_t(segments_[s].offset / sizeof(float)) + first;
  }

  float decay_of(size_t s) const { return *scalars_[kWeightDecay] * segments_[s].weight_decay; }

  // Both norms of every LARS segment in one pass.
  void measure() noexcept {
    std::fill(norms_.begin(), norms_.end(), SquaredNorms{});
    parallel_for(starts_.back(), kGrain, [this](int part, int64_t begin, int64_t end) {
      for_each_piece(begin, end, [&](size_t s, int64_t first, int64_t count) {
        if ((segments_[s].flags & kLars) == 0) return;
        const int64_t at = position(s, first);
        norms_[size_t(part) * segments_.size() + s] = {sum_of_squares(w_ + at, count),
                                                       sum_of_squares(g_ + at, count)};
      });
    });
    for (size_t s = 0; s < segments_.size(); ++s) {
      if ((segments_[s].flags & kLars) == 0) continue;
      SquaredNorms all;
      for (int part = 0; part < parts_; ++part) {
        all.w += norms_[size_t(part) * segments_.size() + s].w;
        all.g += norms_[size_t(part) * segments_.size() + s].g;
      }
      ratios_[s] = ratio_of(s, std::sqrt(all.w), std::sqrt(all.g));
    }
  }

  float ratio_of(size_t s, double w, double g) const {
    if (w == 0 || g == 0) return 1.0f;
    return float(double(*scalars_[kTrust]) * w / (g + double(decay_of(s)) * w + 1e-9));
  }

  void update(size_t s, int64_t first, int64_t count) noexcept {
    const Rates rates{*scalars_[kLearningRate] * segments_[s].learning_rate, *scalars_[kMomentum],
                      decay_of(s), ratios_[s]};
    for (int64_t done = 0; done < count; done += kBlock) {
      const int64_t n = std::min(kBlock, count - done), at = position(s, first + done);
      if (m_ == nullptr) {
        step_plain(w_ + at, g_ + at, rates, n);
      } else if (a_.nesterov) {
        step_nesterov(w_ + at, g_ + at, m_ + at, rates, n);
      } else {
        step_momentum(w_ + at, g_ + at, m_ + at, rates, n);
      }
      // Slots of A lie at half of W's offsets, element for element.
      if (copies_) convert_from_f32(w_ + at, a_.copy_type, copies_ + at * 2, size_t(n));
    }
  }

  OptimizerAttributes a_;
  float *w_, *g_, *m_;
  std::byte* copies_;
  const float* scalars_[5];
  std::vector<Segment> segments_;
  std::vector<int64_t> starts_;  // number of each segment's first element; last: all elements
  std::vector<float> ratios_;
  std::vector<SquaredNorms> norms_;  // [thread][segment]
  int parts_ = 0;
  bool uses_norms_ = false;
};

std::unique_ptr<Kernel> bind_sgd(const BindContext& context) {
  return std::make_unique<Optimizer>(context, false);
}
std::unique_ptr<Kernel> bind_lars(const BindContext& context) {
  return std::make_unique<Optimizer>(context, true);
}

}  // namespace

const OpBackend& range_sgd_cpu() {
  static const OpBackend backend{prepare_own, bind_sgd};
  return backend;
}

const OpBackend& range_lars_cpu() {
  static const OpBackend backend{prepare_own, bind_lars};
  return backend;
}

}  // namespace ren
