// SPDX-License-Identifier: Apache-2.0
#include "random_model.h"

#include <algorithm>

#include "engine/base/rng.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/permute/permute.h"
#include "engine/ops/slice/slice.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/pointwise/activations.h"
#include "small_models.h"

namespace ren::test {
namespace {

constexpr int64_t kBatch = 3;  // while building; structure and choices don't depend on it
constexpr int64_t kMostChannels = 48;

struct ConvForm {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = false;
  int64_t row_stride = 0;  // 0: the stride
};

class Maker {
 public:
  explicit Maker(uint64_t seed)
      : draw_(seed, 6, 0),
        one_pixel_norms_(chance(30)),
        m_(kBatch, pick({1, 5, 7, 7, 8, 9, 9}), pick({1, 3, 3, 3, 4, 8})) {}

  RandomModel run() {
    values_.push_back(m_.graph.input);
    if (chance(80)) values_.push_back(convolution(m_.graph.input, channels(), any_form(m_.graph.input)));
    for (int i = 2 + below(9); i > 0; --i) add_part();
    std::vector<TensorId> heads{head(values_.back())};
    if (chance(20)) heads.push_back(head(any()));
    if (chance(15)) m_.graph.outputs.push_back({"features", values_.back()});  // read, and an output
    const Graph graph = finish(heads);
    return {graph, one_pixel_norms_ ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{3, 1}};
  }

 private:
  int below(int bound) { return int(draw_.below(uint32_t(bound))); }
  bool chance(int percent) { return below(100) < percent; }
  int64_t pick(std::initializer_list<int64_t> values) { return values.begin()[below(int(values.size()))]; }
  int64_t channels() { return chance(60) ? pick({8, 8, 16, 16, 24, 32, 40}) : 1 + below(20); }
  Shape shape(TensorId id) const { return m_.graph.at(id).shape; }
  std::string name(const char* what) { return what + std::to_string(m_.graph.tensors.size()); }

  TensorId any() {
    const size_t window = chance(70) ? std::min<size_t>(3, values_.size()) : values_.size();
    return values_[values_.size() - 1 - size_t(below(int(window)))];
  }

  // Another value that `fits`, or none.
  template <typename Fits>
  TensorId another(TensorId x, Fits fits) {
    std::vector<TensorId> found;
    for (const TensorId id : values_)
      if (fits(shape(id)) && (id != x || chance(10))) found.push_back(id);
    return found.empty() ? kNoTensor : found[size_t(below(int(found.size())))];
  }

  // Once in a while the graph goes on with an earlier value, so that this one has several readers.
  void add_part() {
    const TensorId x = any();
    TensorId y = part(x);
    const Shape s = shape(y);
    if (s.c > kMostChannels) y = convolution(y, channels(), {});
    values_.push_back(y);
  }

  TensorId part(TensorId x) {
    switch (below(27)) {
      case 0:
      case 1:
      case 2:
        return activation(norm(convolution(x, channels(), any_form(x))));
      case 3:
        return norm(activation(x));
      case 4:
        return activation(x);
      case 5:
        return convolution(activation(norm(x)), channels(), any_form(x));
      case 6:
      case 7:
        return residual(x);
      case 8:
        return with_projection(x);
      case 9:
        return gated(x);
      case 10:
      case 11:
        return dense_block(x);
      case 12:
        return joined(x);
      case 13:
      case 14:
        return split(x);
      case 15:
        return pooled(x, true);
      case 16:
        return pooled(activation(norm(convolution(x, channels(), any_form(x)))), true);
      case 17:
        return pooled(x, false);
      case 18:
        return dropped(x);
      case 19:
        return by_sample_norm(x);
      case 20:
        return scaled(x);
      case 21:
        return shared_convolution(x);
      case 22:
        return moved(x);
      case 23:
        return block_with_projection(x);
      case 24:
        return max_pool(m_.relu(convolution(x, channels(), any_form(x))), 2 + below(2), 2, 0);
      case 25:
        return max_pool(m_.relu(norm(convolution(x, channels(), any_form(x)))), 3, 2, 1);
      default:
        return spatially_gated(x);
    }
  }

  // ---- Convolutions and normalisations ----

  ConvForm any_form(TensorId x) {
    const Shape s = shape(x);
    ConvForm f;
    f.kernel = pick({1, 1, 3, 3, 3});
    f.stride = pick({1, 1, 1, 2, 2, 3});
    f.padding = chance(80) ? f.kernel / 2 : below(2);
    if (f.kernel == 3 && chance(15)) f.dilation = f.padding = 2;
    if (chance(25)) f.groups = pick({2, 4, s.c});
    if (s.c % f.groups != 0) f.groups = 1;
    f.bias = chance(30);
    if (std::min(s.h, s.w) + 2 * f.padding < f.dilation * (f.kernel - 1) + 1) f.padding = f.dilation;
    return f;
  }

  TensorId convolution(TensorId x, int64_t k, const ConvForm& f) {
    k = (k + f.groups - 1) / f.groups * f.groups;
    const TensorId w = m_.parameter(name("conv.weight"), {k, f.kernel, f.kernel, shape(x).c / f.groups},
                                    ParameterKind::weight);
    const TensorId b =
        f.bias ? m_.parameter(name("conv.bias"), {1, 1, 1, k}, ParameterKind::bias) : kNoTensor;
    return convolve(x, w, b, f);
  }

  TensorId convolve(TensorId x, TensorId w, TensorId b, const ConvForm& f) {
    auto a = std::make_shared<ConvAttributes>();
    a->stride_h = f.row_stride == 0 ? f.stride : f.row_stride;
    a->stride_w = f.stride;
    a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = f.padding;
    a->dilation_h = a->dilation_w = f.dilation;
    a->groups = f.groups;
    return emit(m_.builder, Op::conv, name("conv"), {x, w, b}, a)[0];
  }

  TensorId norm(TensorId x) { return m_.batch_norm(x, norm_trains(x)); }
  bool norm_trains(TensorId x) {
    const Shape s = shape(x);
    return (s.h * s.w > 1 || one_pixel_norms_) && chance(85);
  }

  TensorId by_sample_norm(TensorId x) {
    const Shape s = shape(x);
    const TensorId scale = m_.parameter(name("norm.weight"), {1, 1, 1, s.c}, ParameterKind::norm_scale);
    const TensorId bias = m_.parameter(name("norm.bias"), {1, 1, 1, s.c}, ParameterKind::norm_bias);
    if (s.c > 3 && chance(50))
      return emit(m_.builder, Op::layer_norm, name("layer_norm"), {x, scale, bias},
                  std::make_shared<LayerNormAttributes>())[0];
    if (s.h * s.w < 4) return x;
    auto a = std::make_shared<GroupNormAttributes>();
    a->groups = s.c % 4 == 0 ? pick({1, 2, 4, s.c}) : 1;
    return emit(m_.builder, Op::group_norm, name("group_norm"), {x, scale, bias}, a)[0];
  }

  // One set of weights, used twice.
  TensorId shared_convolution(TensorId x) {
    const int64_t c = shape(x).c;
    ConvForm f{3, 1, 1, 1, 1, false};
    const TensorId w = m_.parameter(name("shared.weight"), {c, 3, 3, c}, ParameterKind::weight);
    const TensorId b =
        chance(50) ? m_.parameter(name("shared.bias"), {1, 1, 1, c}, ParameterKind::bias) : kNoTensor;
    const TensorId once = activation(norm(convolve(x, w, b, f)));
    const TensorId twice = convolve(once, w, b, f);
    if (chance(50)) return twice;
    // One normalisation used twice: its statistics move twice, in this order.
    const TensorId normalised = m_.batch_norm(chance(50) ? x : convolve(x, w, b, f), norm_trains(x));
    const Node first = m_.graph.nodes.back();
    std::vector<TensorId> inputs = first.inputs;
    inputs[0] = convolve(activation(normalised), w, kNoTensor, f);
    return m_.add(twice, emit(m_.builder, Op::batch_norm, name("bn_again"), inputs, first.attributes)[0]);
  }

  // ---- Expressions ----

  TensorId unary(const Expression& e, TensorId x) { return m_.pointwise(name("unary"), {x}, e); }

  TensorId activation(TensorId x) {
    if (chance(60)) return m_.relu(x);
    const char* const names[] = {"Tanh", "Sigmoid", "HardSwish", "Swish", "LeakyRelu", "Gelu", "HardSigmoid"};
    if (chance(80)) return unary(ren::activation(names[below(7)]), x);
    return unary(clip(0, 6), x);
  }

  TensorId binary(TensorId x, TensorId y) {
    if (chance(70)) return m_.add(x, y);
    if (chance(60)) return m_.multiply(x, y);
    ExpressionBuilder e;
    Value value = e.maximum(e.input(0), e.input(1));
    if (chance(50)) value = e.sub(e.input(0), e.input(1));
    if (chance(30)) value = e.mul(e.maximum(e.input(0), e.constant(0)), e.input(1));
    return m_.pointwise(name("binary"), {x, y}, e.finish({value}, 2));
  }

  TensorId residual(TensorId x) {
    const TensorId other = another(x, [&](const Shape& s) { return s == shape(x); });
    if (other != kNoTensor && chance(50)) return binary(x, other);
    const int64_t c = shape(x).c;
    const TensorId inner = activation(norm(convolution(x, channels(), {3, 1, 1, 1, 1, false})));
    TensorId outer = norm(convolution(inner, c, {3, 1, 1, 1, 1, chance(20)}));
    if (chance(20)) outer = gated(outer);
    if (chance(20)) outer = dropped(outer);
    const TensorId sum = chance(50) ? m_.add(outer, x) : m_.add(x, outer);
    return chance(80) ? activation(sum) : sum;
  }

  TensorId with_projection(TensorId x) {
    const int64_t stride = pick({1, 2, 2, 3}), k = channels();
    const TensorId inner = activation(norm(convolution(x, channels(), {3, stride, 1, 1, 1, chance(20)})));
    const int64_t kernel = pick({1, 3});
    const TensorId outer = norm(convolution(inner, k, {kernel, 1, kernel / 2, 1, 1, false}));
    ConvForm f{1, stride, 0, 1, 1, chance(20)};
    TensorId projected = convolution(x, k, f);
    if (chance(80)) projected = norm(projected);
    return activation(m_.add(outer, projected));
  }

  // Of a ResNet, behind another block.
  TensorId block_with_projection(TensorId x) {
    const int64_t k = pick({8, 16, 24});
    TensorId joined = x;
    if (shape(x).c % 8 != 0 || chance(50)) joined = m_.relu(norm(convolution(x, k, {3, 1, 1, 1, 1, false})));
    const TensorId inner = m_.relu(norm(convolution(joined, k, {1, 1, 0, 1, 1, false})));
    const int64_t stride = pick({1, 2, 2}), rows = pick({0, 0, 1, 3});
    const TensorId outer = norm(convolution(inner, 2 * k, {3, stride, 1, 1, 1, false, rows}));
    return m_.relu(m_.add(outer, norm(convolution(joined, 2 * k, {1, stride, 0, 1, 1, false, rows}))));
  }

  TensorId gate_of(TensorId x) {
    const Shape s = shape(x);
    const TensorId mean = m_.global_mean(x);
    if (chance(50)) {
      const TensorId inner = activation(convolution(mean, 4 + below(8), {1, 1, 0, 1, 1, true}));
      return unary(ren::activation("Sigmoid"), convolution(inner, s.c, {1, 1, 0, 1, 1, true}));
    }
    const TensorId inner = activation(m_.linear(mean, 8));
    return unary(ren::activation("HardSigmoid"), m_.linear(inner, s.c));
  }
  // Scaled and shifted by halves of what the pooled values give.
  TensorId modulated(TensorId x) {
    const int64_t c = shape(x).c;
    const TensorId both = convolution(m_.global_mean(x), 2 * c, {1, 1, 0, 1, 1, true});
    return m_.add(m_.multiply(x, slice(both, Axis::c, 0, c)), slice(both, Axis::c, c, c));
  }

  TensorId gated(TensorId x) {
    if (chance(20)) return modulated(x);
    const TensorId gate = gate_of(x);
    return chance(50) ? m_.multiply(x, gate) : m_.multiply(gate, x);
  }

  // By a number for each pixel, from its channels.
  TensorId spatially_gated(TensorId x) {
    ExpressionBuilder e;
    const Expression mean = e.finish({e.mul(e.input(0), e.constant(1.0 / double(shape(x).c)))}, 1);
    const TensorId mask =
        emit(m_.builder, Op::reduce, name("mean"), {x},
             std::make_shared<ReduceAttributes>(mean, ReduceKind::sum, true, true, true, false))[0];
    return m_.multiply(x, unary(ren::activation("Sigmoid"), mask));
  }

  TensorId scaled(TensorId x) {
    const int64_t c = chance(70) ? shape(x).c : 1;
    if (chance(30)) return weighted(x, c);
    TensorId s = m_.parameter(name("scale"), {1, 1, 1, c}, ParameterKind::scale);
    if (chance(30)) s = unary(ren::activation("Sigmoid"), s);
    if (chance(20)) return m_.pointwise(name("prelu"), {x, s}, prelu());
    return chance(50) ? m_.multiply(x, s) : m_.add(x, s);
  }

  // By pieces of one parameter, or of its softmax.
  TensorId weighted(TensorId x, int64_t c) {
    TensorId all = m_.parameter(name("weights"), {1, 1, 1, 2 * c}, ParameterKind::scale);
    if (chance(50))
      all = emit(m_.builder, Op::softmax, name("softmax"), {all},
                 std::make_shared<SoftmaxAttributes>(false))[0];
    const TensorId first = slice(all, Axis::c, 0, c), second = slice(all, Axis::c, c, c);
    return m_.add(m_.multiply(x, first), m_.multiply(activation(x), second));
  }

  TensorId dropped(TensorId x) {
    ExpressionBuilder e;
    const Value keep = e.less(e.uniform(stream_++, chance(40)), e.constant(0.7));
    auto a = std::make_shared<PointwiseAttributes>(
        e.finish({e.select(keep, e.mul(e.input(0), e.constant(1 / 0.7)), e.constant(0))}, 1));
    a->training_only = true;
    return emit(m_.builder, Op::pointwise, name("dropout"), {x, random_state()}, a)[0];
  }

  TensorId random_state() {
    if (m_.graph.scalars.empty()) m_.builder.add_scalars();
    return m_.graph.scalar(Scalar::random_state);
  }

  TensorId global_max(TensorId x) {
    auto a = std::make_shared<PoolAttributes>();
    a->kernel_h = a->stride_h = shape(x).h, a->kernel_w = a->stride_w = shape(x).w;
    return emit(m_.builder, Op::max_pool, name("global_max"), {x}, a)[0];
  }

  // ---- Data movement ----

  TensorId concat(const std::vector<TensorId>& parts) {
    return emit(m_.builder, Op::concat, name("concat"), parts,
                std::make_shared<ConcatAttributes>(Axis::c))[0];
  }
  TensorId slice(TensorId x, Axis axis, int64_t begin, int64_t count, int64_t step = 1) {
    return emit(m_.builder, Op::slice, name("slice"), {x},
                std::make_shared<SliceAttributes>(axis, begin, count, step))[0];
  }

  TensorId dense_block(TensorId x) {
    std::vector<TensorId> parts{x};
    const bool eight = chance(60);
    for (int i = 1 + below(3); i > 0; --i) {
      const TensorId all = parts.size() == 1 ? x : concat(parts);
      const TensorId wide = chance(70) ? activation(norm(all)) : all;
      parts.push_back(convolution(wide, eight ? 8 : 1 + below(12), {3, 1, 1, 1, 1, false}));
    }
    return concat(parts);
  }

  TensorId joined(TensorId x) {
    std::vector<TensorId> parts{x};
    for (int i = 1 + below(3); i > 0; --i) {
      const Shape s = shape(x);
      const TensorId other =
          another(x, [&](const Shape& o) { return o.h == s.h && o.w == s.w && o.n == s.n; });
      if (other != kNoTensor) parts.push_back(chance(40) ? activation(other) : other);
    }
    if (parts.size() == 1) parts.push_back(activation(x));
    std::rotate(parts.begin(), parts.begin() + below(int(parts.size())), parts.end());
    return concat(parts);
  }

  // As torch.chunk, each piece its own way.
  TensorId split(TensorId x) {
    const int64_t c = shape(x).c;
    if (c < 2) return activation(x);
    const int64_t count = std::min<int64_t>(c, pick({2, 2, 3, 4})), piece = (c + count - 1) / count;
    std::vector<TensorId> parts;
    for (int64_t begin = 0; begin < c; begin += piece)
      parts.push_back(slice(x, Axis::c, begin, std::min(piece, c - begin)));
    if (parts.size() == 2 && shape(parts[0]) == shape(parts[1]) && chance(40))
      return chance(50) ? m_.multiply(parts[0], unary(ren::activation("Sigmoid"), parts[1]))
                        : binary(parts[0], parts[1]);
    std::vector<TensorId> out;
    for (TensorId p : parts) {
      if (chance(15)) continue;
      if (chance(40)) p = activation(p);
      if (chance(30)) p = norm(p);
      if (chance(30)) p = convolution(p, shape(p).c, {3, 1, 1, 1, 1, false});
      if (chance(20)) values_.push_back(p);
      out.push_back(p);
    }
    if (out.empty()) return activation(parts[0]);
    return out.size() == 1 ? out[0] : concat(out);
  }

  TensorId pooled(TensorId x, bool max) {
    const Shape s = shape(x);
    auto a = std::make_shared<PoolAttributes>();
    a->kernel_h = a->kernel_w = pick({2, 3, 3});
    a->stride_h = a->stride_w = pick({1, 2, 2, 3});
    if (chance(60)) a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = a->kernel_h / 2;
    if (max && chance(10)) a->dilation_h = a->dilation_w = 2;
    a->ceil_mode = chance(30);
    a->count_include_pad = !max && chance(50);
    const int64_t least = std::min(s.h, s.w);
    if (least + 2 * a->pad_top < a->dilation_h * (a->kernel_h - 1) + 1) return max ? m_.relu(x) : x;
    if (a->dilation_h > 1 && least < 4) return x;
    return emit(m_.builder, max ? Op::max_pool : Op::average_pool, name("pool"), {x}, a)[0];
  }

  TensorId max_pool(TensorId x, int64_t kernel, int64_t stride, int64_t padding) {
    const Shape s = shape(x);
    if (std::min(s.h, s.w) + 2 * padding < kernel) return x;
    auto a = std::make_shared<PoolAttributes>();
    a->kernel_h = a->kernel_w = kernel, a->stride_h = a->stride_w = stride;
    a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = padding;
    return emit(m_.builder, Op::max_pool, name("pool"), {x}, a)[0];
  }

  TensorId moved(TensorId x) {
    const Shape s = shape(x);
    if (chance(40) && s.c % 2 == 0) {
      auto a = std::make_shared<PermuteAttributes>();
      a->split = {s.h, s.w, 2, s.c / 2};
      a->order = {0, 1, 3, 2};
      a->h = s.h, a->w = s.w, a->c = s.c;
      return emit(m_.builder, Op::permute, name("shuffle"), {x}, a)[0];
    }
    if (chance(50) && s.h > 1) {
      const TensorId even = slice(x, Axis::h, 0, (s.h + 1) / 2, 2);
      return chance(50) ? slice(even, Axis::w, s.w > 1, s.w / 2 + (s.w == 1), 2) : even;
    }
    auto a = std::make_shared<PadAttributes>();
    a->top = a->right = 1;
    a->c_after = chance(30) ? 3 : 0;
    return emit(m_.builder, Op::pad, name("pad"), {x}, a)[0];
  }

  // ---- Outputs ----

  TensorId head(TensorId x) {
    const Shape s = shape(x);
    if (s.h * s.w * s.c <= 64 && chance(20)) return m_.linear(x, 4);
    TensorId mean = m_.global_mean(x);
    if (chance(20)) mean = concat({mean, chance(50) ? mean : global_max(x)});
    if (chance(20)) return m_.linear(activation(m_.linear(mean, 8)), 5);
    return m_.linear(chance(15) ? dropped(mean) : mean, 4);
  }

  Graph finish(const std::vector<TensorId>& heads) {
    Graph& graph = m_.graph;
    graph.outputs.insert(graph.outputs.begin(), {"logits", heads[0]});
    if (chance(20))  // as when a pretrained network's first layers stay as they are
      for (size_t i = 0; i + 2 < graph.parameters.size(); ++i)
        graph.parameters[i].trainable = i > graph.parameters.size() / 2 || chance(40);
    for (size_t i = 1; i < heads.size(); ++i) graph.outputs.push_back({"auxiliary", heads[i]});
    verify(graph, "random_model");
    return graph;
  }

  RandomStream draw_;
  const bool one_pixel_norms_;
  ModelBuilder m_;
  uint32_t stream_ = 0;
  std::vector<TensorId> values_;
};

}  // namespace

RandomModel random_model(uint64_t seed) { return Maker(seed).run(); }

}  // namespace ren::test
