// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/base/status.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/support/kernel.h"
#include "engine/ops/support/moments_cpu.h"

namespace ren {
namespace {

int64_t grain_of(int64_t channels) { return std::max<int64_t>(1, (1 << 14) / channels); }

NodeChoice prepare(const PrepareContext& context) {
  if (context.node.inputs.size() > 4)
    fail(StatusCode::unsupported, "statistics from a convolution's sums have no kernel on CPUs");
  const Shape& x = context.graph.at(context.node.inputs[0]).shape;
  const int parts = parallel_parts(x.pixels(), grain_of(x.c));
  return own_engine(uint64_t(parts) * uint64_t(x.c) * sizeof(Moments));
}

// Each thread gathers the moments of its rows; they are merged in the order of the rows, so
// that the result depends on the number of threads alone.
class Statistics final : public Kernel {
 public:
  explicit Statistics(const BindContext& context)
      : attributes_(context.node.as<BatchNormAttributes>()),
        shape_(input_tensor(context, 0).shape),
        type_(input_tensor(context, 0).dtype),
        x_(context.inputs[0]),
        running_mean_(input_as<float>(context, 1)),
        running_variance_(input_as<float>(context, 2)),
        shift_(context.inputs.size() > 3 ? input_as<const float>(context, 3) : nullptr),
        mean_(output_as<float>(context, 0)),
        inverse_(output_as<float>(context, 1)),
        parts_(reinterpret_cast<Moments*>(context.workspace)),
        part_count_(parallel_parts(shape_.pixels(), grain_of(shape_.c))) {}

  void launch() noexcept override {
    std::fill_n(parts_, int64_t(part_count_) * shape_.c, Moments{});
    parallel_for(shape_.pixels(), grain_of(shape_.c), [this](int part, int64_t begin, int64_t end) {
      accumulate_columns(x_, type_, begin, end, shape_.c, shape_.c, parts_ + part * shape_.c);
    });
    for (int64_t c = 0; c < shape_.c; ++c) finish(c);
  }

 private:
  void finish(int64_t c) {
    Moments all;
    for (int part = 0; part < part_count_; ++part) all.merge(parts_[part * shape_.c + c]);
    if (mean_) mean_[c] = float(all.mean);
    if (inverse_) inverse_[c] = float(1 / std::sqrt(all.variance() + double(attributes_.epsilon)));
    if (!running_mean_ || !std::isfinite(all.mean) || !std::isfinite(all.squares)) return;
    const double keep = attributes_.keep;
    running_mean_[c] =
        float(keep * double(running_mean_[c]) + (1 - keep) * (all.mean + (shift_ ? double(shift_[c]) : 0)));
    const double unbiased = all.squares / (all.count - 1);
    running_variance_[c] = float(keep * double(running_variance_[c]) + (1 - keep) * unbiased);
  }

  BatchNormAttributes attributes_;
  Shape shape_;
  DType type_;
  const std::byte* x_;
  float *running_mean_, *running_variance_;
  const float* shift_;
  float *mean_, *inverse_;
  Moments* parts_;
  int part_count_;
};

std::unique_ptr<Kernel> bind(const BindContext& context) { return std::make_unique<Statistics>(context); }

}  // namespace

const OpBackend& batch_norm_statistics_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
