// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/permute/permute.h"
#include "engine/ops/support/copy_cpu.h"

namespace ren {
namespace {

// One axis of the output in its order: its extent and the distance of its elements in x.
struct OutputAxis {
  int64_t extent, stride;
};

// Axes that stay neighbours are one axis; those of extent 1 are none.
std::vector<OutputAxis> axes_of(const PermuteAttributes& a, int64_t samples) {
  std::vector<int64_t> strides(a.split.size(), 1);
  for (size_t i = a.split.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * a.split[i + 1];
  std::vector<OutputAxis> axes{{samples, strides[0] * a.split[0]}};
  for (const int from : a.order) {
    const OutputAxis next{a.split[size_t(from)], strides[size_t(from)]};
    if (next.extent == 1) continue;
    OutputAxis& last = axes.back();
    if (last.stride == next.extent * next.stride || last.extent == 1) {
      last = {last.extent * next.extent, next.stride};
    } else {
      axes.push_back(next);
    }
  }
  return axes;
}

class Permute final : public Kernel {
 public:
  explicit Permute(const BindContext& context)
      : element_(int64_t(size_of(input_tensor(context, 0).dtype))),
        source_(context.inputs[0]),
        target_(context.outputs[0]) {
    axes_ = axes_of(context.node.as<PermuteAttributes>(), input_tensor(context, 0).shape.n);
    run_ = axes_.back();
    axes_.pop_back();
    for (const OutputAxis& axis : axes_) runs_ *= axis.extent;
  }

  void launch() noexcept override {
    parallel_for(runs_, block_grain(run_.extent * element_), [this](int, int64_t begin, int64_t end) {
      for (int64_t run = begin; run < end; ++run) copy_run(run);
    });
  }

 private:
  void copy_run(int64_t run) const noexcept {
    int64_t rest = run, at = 0;
    for (size_t i = axes_.size(); i-- > 0;) {
      at += rest % axes_[i].extent * axes_[i].stride;
      rest /= axes_[i].extent;
    }
    std::byte* to = target_ + run * run_.extent * element_;
    if (run_.stride == 1) {
      std::memcpy(to, source_ + at * element_, size_t(run_.extent * element_));
    } else {
      copy_pieces(to, element_, source_ + at * element_, run_.stride * element_, element_, run_.extent);
    }
  }

  int64_t element_, runs_ = 1;
  const std::byte* source_;
  std::byte* target_;
  std::vector<OutputAxis> axes_;
  OutputAxis run_{};
};

std::unique_ptr<Kernel> bind(const BindContext& context) { return std::make_unique<Permute>(context); }

}  // namespace

const OpBackend& permute_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
