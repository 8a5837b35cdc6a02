// SPDX-License-Identifier: Apache-2.0
#include "graphs.h"

namespace ren::test {
namespace {

// Forward and backward as the passes leave them: convolution, statistics, one pointwise node that
// normalises, adds and rectifies; backward the two reductions, one pointwise node, the two convolutions.
class ResNet50 {
 public:
  ResNet50(int64_t batch, bool training, int times_deeper)
      : training_(training), times_deeper_(times_deeper) {
    m_.graph.input = m_.tensor("input", {batch, 224, 224, 3});
  }

  GraphMaker run() {
    TensorId x = unit(m_.graph.input, 64, 7, 2, kNoTensor);
    x = pool(x);
    const int blocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage)
      for (int b = 0; b < times_deeper_ * blocks[stage]; ++b)
        x = bottleneck(x, int64_t(64) << stage, b == 0, stage > 0 && b == 0 ? 2 : 1);
    head(x);
    if (training_)
      for (auto back = backward_.rbegin(); back != backward_.rend(); ++back) emit(*back);
    return std::move(m_);
  }

 private:
  struct Unit {
    TensorId x, conv, y, mean, deviation, residual, weight, scale, shift;
    bool pool = false;
  };

  std::string fresh(const char* name) { return name + std::to_string(m_.graph.tensors.size()); }
  const Shape& shape(TensorId id) const { return m_.graph.at(id).shape; }

  TensorId unit(TensorId x, int64_t k, int64_t r, int64_t stride, TensorId residual) {
    const Shape s = shape(x);
    const Shape out{s.n, s.h / stride, s.w / stride, k};
    Unit u{};
    u.x = x, u.residual = residual;
    u.weight = m_.parameter(fresh("weight"), {k, r, r, s.c});
    u.scale = m_.parameter(fresh("scale"), {1, 1, 1, k}, ParameterKind::norm_scale);
    u.shift = m_.parameter(fresh("shift"), {1, 1, 1, k}, ParameterKind::norm_bias);
    const TensorId mean = m_.tensor(fresh("running_mean"), {1, 1, 1, k}, Region::B);
    const TensorId variance = m_.tensor(fresh("running_variance"), {1, 1, 1, k}, Region::B);
    u.conv = m_.tensor(fresh("conv"), out);
    u.y = m_.tensor(fresh("y"), out);
    u.mean = m_.tensor(fresh("mean"), {1, 1, 1, k});
    u.deviation = m_.tensor(fresh("deviation"), {1, 1, 1, k});
    m_.node(Op::conv, {x, u.weight, kNoTensor}, {u.conv}, 65536 * uint64_t(r));
    m_.node(Op::batch_norm_statistics, {u.conv, mean, variance}, {u.mean, u.deviation}, 4096);
    m_.node(Op::pointwise, {u.conv, u.mean, u.deviation, u.scale, u.shift, residual}, {u.y});
    backward_.push_back(u);
    return u.y;
  }

  TensorId pool(TensorId x) {
    const Shape s = shape(x);
    Unit u{};
    u.pool = true, u.x = x;
    u.y = m_.tensor(fresh("pooled"), {s.n, s.h / 2, s.w / 2, s.c});
    u.conv = m_.tensor(fresh("index"), shape(u.y), Region::F, DType::u8);
    m_.node(Op::max_pool, {x}, {u.y, training_ ? u.conv : kNoTensor});
    backward_.push_back(u);
    return u.y;
  }

  TensorId bottleneck(TensorId x, int64_t width, bool project, int64_t stride) {
    const TensorId shortcut = project ? unit(x, 4 * width, 1, stride, kNoTensor) : x;
    TensorId y = unit(x, width, 1, 1, kNoTensor);
    y = unit(y, width, 3, stride, kNoTensor);
    return unit(y, 4 * width, 1, 1, shortcut);
  }

  void head(TensorId x) {
    const TensorId mean = m_.tensor("features", {shape(x).n, 1, 1, shape(x).c});
    const TensorId weight = m_.parameter("fc", {1000, 1, 1, shape(x).c});
    const TensorId logits = m_.tensor("logits", {shape(x).n, 1, 1, 1000});
    m_.node(Op::reduce, {x}, {mean});
    m_.node(Op::gemm, {mean, weight}, {logits});
    m_.graph.at(logits).keep = !training_;
    if (!training_) return;
    const TensorId dlogits = m_.tensor("dlogits", shape(logits)), dmean = m_.tensor("dfeatures", shape(mean));
    m_.node(Op::cross_entropy_backward, {logits}, {dlogits});
    m_.node(Op::gemm, {dlogits, mean}, {gradient(weight)});
    m_.node(Op::gemm, {dlogits, weight}, {dmean});
    flow(x, [&] {
      const TensorId dx = m_.tensor(fresh("d"), shape(x));
      m_.node(Op::pointwise, {dmean}, {dx});
      return dx;
    }());
  }

  TensorId gradient(TensorId weight) { return m_.family(m_.graph.at(weight).parameter, Region::G); }

  void flow(TensorId to, TensorId contribution) {
    gradients_.resize(m_.graph.tensors.size(), kNoTensor);
    TensorId& known = gradients_[size_t(to)];
    if (known == kNoTensor) {
      known = contribution;
    } else {
      const TensorId sum = m_.tensor(fresh("sum"), shape(to));
      m_.node(Op::pointwise, {known, contribution}, {sum});
      known = sum;
    }
  }

  void emit(const Unit& u) {
    const TensorId dy = gradients_[size_t(u.y)];
    const TensorId dx = u.x == m_.graph.input ? kNoTensor : m_.tensor(fresh("d"), shape(u.x));
    if (u.pool) {
      m_.node(Op::max_pool_backward, {dy, u.conv, u.x}, {dx});
      return flow(u.x, dx);
    }
    const TensorId dconv = m_.tensor(fresh("dconv"), shape(u.conv));
    TensorId through = dy;
    if (u.residual != kNoTensor) {
      through = m_.tensor(fresh("drelu"), shape(u.y));
      m_.node(Op::pointwise, {dy, u.y}, {through});
    }
    m_.node(Op::reduce, {through, u.y, u.conv, u.mean, u.deviation}, {gradient(u.scale), gradient(u.shift)},
            4096);
    m_.node(Op::pointwise, {through, u.y, u.conv, u.mean, u.deviation, u.scale}, {dconv});
    m_.node(Op::conv_backward_weights, {u.x, dconv, u.weight}, {gradient(u.weight)}, 1 << 20);
    if (dx != kNoTensor) m_.node(Op::conv_backward_data, {dconv, u.weight, u.x}, {dx}, 1 << 20);
    if (dx != kNoTensor) flow(u.x, dx);
    if (u.residual != kNoTensor) flow(u.residual, through);
  }

  bool training_;
  int times_deeper_;
  GraphMaker m_;
  std::vector<Unit> backward_;
  std::vector<TensorId> gradients_;  // by tensor
};

}  // namespace

GraphMaker resnet50(int64_t batch, bool training, int times_deeper) {
  return ResNet50(batch, training, times_deeper).run();
}

}  // namespace ren::test
