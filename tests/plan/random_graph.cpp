// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "graphs.h"

namespace ren::test {
namespace {

// Stands for the batch size while the structure is drawn, so that it does not depend on it.
constexpr int64_t kBatch = 1009;

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, Role role, int64_t batch)
      : model_(seed, 1, 0), draw_(seed, 2, uint64_t(role)), role_(role), batch_(batch) {}

  GraphMaker run() {
    make_parameters();
    make_persistent();
    make_input();
    const int nodes = 2 + int(draw_.below(50));
    for (int i = 0; i < nodes; ++i) add_node(i);
    if (role_ == Role::step || role_ == Role::accumulate) add_gradients();
    keep_some();
    for (Tensor& t : m_.graph.tensors)
      if (t.shape.n == kBatch) t.shape.n = batch_;
    return std::move(m_);
  }

 private:
  bool chance(int percent) { return int(draw_.below(100)) < percent; }

  void make_parameters() {
    const int count = 1 + int(model_.below(6));
    for (int i = 0; i < count; ++i) {
      const Shape shape{1 + int64_t(model_.below(9)), 1 + int64_t(model_.below(3)), 1,
                        1 + int64_t(model_.below(70))};
      weights_.push_back(m_.parameter(fmt::format("p{}", i), shape));
    }
  }

  void make_persistent() {
    const int buffers = int(model_.below(4));
    for (int i = 0; i < buffers; ++i)
      m_.tensor(fmt::format("buffer{}", i), {1, 1, 1, 1 + int64_t(model_.below(99))}, Region::B);
    m_.tensor("loss", {}, Region::R);
    scalar_ = m_.tensor("scalar", {}, Region::S);
    m_.tensor("random", {1, 1, 1, 4}, Region::S, DType::i32);
  }

  void make_input() {
    const Shape images{kBatch, 4, 4, 3};
    std::vector<TensorId> slots;
    for (const char* slot : {"0", "1"}) {
      slots.push_back(m_.tensor(std::string("record") + slot, {1, 1, 1, 256}, Region::I, DType::u8));
      if (role_ != Role::predict)
        slots.push_back(m_.tensor(std::string("labels") + slot, {kBatch, 1, 1, 1}, Region::I, DType::i32));
      slots.push_back(m_.tensor(std::string("images") + slot, images, Region::I, DType::u8));
    }
    const TensorId input = m_.tensor("input", images);
    m_.graph.input = input;
    if (!chance(30)) m_.node(Op::load_batch, slots, {input});  // else its value comes from outside
    // Values that don't come from the input, so that it is not always read first.
    for (int others = int(draw_.below(4)); others > 0; --others) {
      values_.push_back(new_value(any_shape()));
      m_.node(Op::load_batch, {}, {values_.back()});
    }
    values_.insert(values_.begin() + ptrdiff_t(draw_.below(uint32_t(values_.size()) + 1)), input);
  }

  Shape any_shape() {
    const int64_t side = int64_t(1) << draw_.below(4);
    const int64_t channels[] = {1, 3, 8, 40, 129};
    return {chance(85) ? kBatch : 1, side, side, channels[draw_.below(5)]};
  }

  TensorId any_value() {
    const size_t window = chance(70) ? std::min<size_t>(4, values_.size()) : values_.size();
    return values_[values_.size() - 1 - draw_.below(uint32_t(window))];
  }

  Region any_region() { return chance(25) ? Region::T : Region::F; }
  std::string fresh(const char* kind) { return std::string(kind) + std::to_string(m_.graph.tensors.size()); }

  void add_node(int i) {
    if (chance(12)) return add_alias();
    if (chance(50)) return add_pointwise();
    const Op ops[] = {Op::conv,    Op::gemm, Op::reduce, Op::max_pool_backward, Op::conv_backward_data,
                      Op::max_pool};
    const Op op = ops[draw_.below(6)];
    std::vector<TensorId> inputs{any_value(),
                                 chance(10) ? kNoTensor : weights_[draw_.below(uint32_t(weights_.size()))]};
    for (int more = int(draw_.below(3)); more > 0; --more) inputs.push_back(any_value());
    std::vector<TensorId> outputs;
    // A reduction's results are FP32; of 16 bits is what it stores in passing, as large as an operand.
    const bool reduces = op == Op::reduce;
    for (int more = int(draw_.below(3)); more >= 0; --more)
      outputs.push_back(reduces ? new_value(any_shape(), DType::f32) : new_value(any_shape()));
    if (reduces && chance(50)) outputs.push_back(new_value(m_.graph.at(inputs[0]).shape, DType::f16));
    if (chance(10)) outputs.push_back(kNoTensor);
    const uint64_t workspace = chance(40) ? draw_.below(5000) * uint64_t(batch_) : 0;
    m_.node(op, inputs, outputs, workspace, fmt::format("n{}", i));
    for (const TensorId id : outputs)
      if (id != kNoTensor && !chance(15)) values_.push_back(id);  // the rest is never read
  }

  TensorId new_value(Shape shape) {
    const DType types[] = {DType::f32, DType::f32, DType::f32, DType::f16, DType::u8};
    return new_value(shape, types[draw_.below(5)]);
  }
  TensorId new_value(Shape shape, DType type) { return m_.tensor(fresh("v"), shape, any_region(), type); }

  void add_alias() {
    const TensorId of = any_value();
    const Shape s = m_.graph.at(of).shape;
    const TensorId id = m_.alias(fresh("view"), of, {s.n, 1, 1, s.h * s.w * s.c});
    if (chance(50)) m_.node(Op::view, {of}, {id});
    values_.push_back(id);
  }

  // The last operand or two may be broadcast: a scalar, [1,1,1,C] or [N,1,1,C] of the first one's extents.
  void add_pointwise() {
    const TensorId full = any_value();
    const Tensor model = m_.graph.at(full);
    std::vector<TensorId> inputs{full};
    for (const TensorId id : values_)
      if (chance(20) && inputs.size() < 4 && m_.graph.at(id).shape == model.shape) inputs.push_back(id);
    for (const TensorId id : values_) {
      const Shape s = m_.graph.at(id).shape;
      const bool per_channel =
          s.h == 1 && s.w == 1 && s.c == model.shape.c && (s.n == 1 || s.n == model.shape.n);
      if (per_channel && chance(50) && inputs.size() < 5) inputs.push_back(id);
    }
    if (chance(20)) inputs.push_back(scalar_);
    if (chance(30)) std::reverse(inputs.begin(), inputs.end());
    std::vector<TensorId> outputs;
    for (int more = chance(25) ? 2 : 1; more > 0; --more) {
      const bool other_type = chance(10);
      outputs.push_back(m_.tensor(fresh("e"), model.shape, chance(85) ? model.region : any_region(),
                                  other_type ? DType::bf16 : model.dtype));
    }
    m_.node(Op::pointwise, inputs, outputs);
    values_.insert(values_.end(), outputs.begin(), outputs.end());
  }

  void add_gradients() {
    for (size_t p = m_.graph.parameters.size(); p-- > 0;) {
      if (model_.below(5) == 0) continue;  // a frozen one
      const TensorId gradient = m_.family(int32_t(p), Region::G);
      const TensorId from = any_value();
      m_.node(Op::conv_backward_weights, {from, any_value(), weights_[p]}, {gradient}, draw_.below(9000));
      if (model_.below(4) == 0)
        m_.node(Op::pointwise, {gradient, gradient}, {gradient});  // tied: a second contribution
    }
  }

  void keep_some() {
    for (Tensor& t : m_.graph.tensors)
      if (t.region == Region::F && chance(6)) t.keep = true;
  }

  RandomStream model_;  // what all roles share
  RandomStream draw_;
  Role role_;
  int64_t batch_;
  GraphMaker m_;
  std::vector<TensorId> weights_, values_;
  TensorId scalar_ = kNoTensor;
};

}  // namespace

GraphMaker random_graph(uint64_t seed, Role role, int64_t batch) {
  return RandomGraph(seed, role, batch).run();
}

PlanOptions random_options(uint64_t seed, size_t parameters) {
  RandomStream draw(seed, 3, 0);
  PlanOptions options;
  for (size_t i = 0; i < parameters; ++i) options.slot_order.push_back(int32_t(i));
  for (size_t i = parameters; i > 1; --i)
    std::swap(options.slot_order[i - 1], options.slot_order[draw.below(uint32_t(i))]);
  options.compute_copies = draw.below(2) == 0;
  options.compute_type = options.compute_copies ? DType::bf16 : DType::f32;
  options.ema = draw.below(2) == 0;
  options.first_moments = draw.below(2) == 0;
  options.second_moments = draw.below(2) == 0;
  options.norms = draw.below(2) == 0;
  options.channel_padding = draw.below(3) == 0;
  return options;
}

}  // namespace ren::test
