// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/permute/axes.h"
#include "engine/ops/support/copy_cpu.h"

namespace ren {
namespace {

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
