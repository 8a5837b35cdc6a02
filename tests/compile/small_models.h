// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/concat/concat.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/op.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/view/view.h"

namespace ren::test {

// Builds small forward graphs by hand, as the importer would.
class ModelBuilder {
 public:
  ModelBuilder(int64_t batch, int64_t size, int64_t channels) {
    graph.name = "test";
    graph.input = builder.tensor("image", {{batch, size, size, channels}, DType::f32});
  }

  TensorId parameter(const std::string& name, Shape shape, ParameterKind kind) {
    Parameter p;
    p.name = name;
    p.shape = shape;
    p.kind = kind;
    return builder.parameter(p);
  }
  TensorId conv(TensorId x, int64_t k, int64_t kernel, int64_t stride, bool with_bias = false) {
    const std::string name = next("conv");
    auto a = std::make_shared<ConvAttributes>();
    a->stride_h = a->stride_w = stride;
    a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = kernel / 2;
    const TensorId w =
        parameter(name + ".weight", {k, kernel, kernel, graph.at(x).shape.c}, ParameterKind::weight);
    const TensorId bias =
        with_bias ? parameter(name + ".bias", {1, 1, 1, k}, ParameterKind::bias) : kNoTensor;
    return emit(builder, Op::conv, name, {x, w, bias}, a)[0];
  }
  TensorId batch_norm(TensorId x, bool training = true) {
    const std::string name = next("bn");
    const Shape c{1, 1, 1, graph.at(x).shape.c};
    const TensorId scale = parameter(name + ".weight", c, ParameterKind::norm_scale);
    const TensorId bias = parameter(name + ".bias", c, ParameterKind::norm_bias);
    const TensorId mean = builder.buffer(name + ".running_mean", c),
                   var = builder.buffer(name + ".running_var", c);
    auto a = std::make_shared<BatchNormAttributes>();
    a->training = training;
    return emit(builder, Op::batch_norm, name, {x, scale, bias, mean, var}, a)[0];
  }
  TensorId relu(TensorId x) {
    ExpressionBuilder e;
    return pointwise(next("relu"), {x}, e.finish({e.maximum(e.input(0), e.constant(0))}, 1));
  }
  TensorId tanh(TensorId x) {
    ExpressionBuilder e;
    return pointwise(next("tanh"), {x}, e.finish({e.apply(Prim::tanh, e.input(0))}, 1));
  }
  TensorId add(TensorId x, TensorId y) {
    ExpressionBuilder e;
    return pointwise(next("add"), {x, y}, e.finish({e.add(e.input(0), e.input(1))}, 2));
  }
  TensorId multiply(TensorId x, TensorId y) {
    ExpressionBuilder e;
    return pointwise(next("mul"), {x, y}, e.finish({e.mul(e.input(0), e.input(1))}, 2));
  }
  TensorId concat(std::vector<TensorId> parts) {
    return emit(builder, Op::concat, next("concat"), std::move(parts),
                std::make_shared<ConcatAttributes>(Axis::c))[0];
  }
  TensorId max_pool(TensorId x) {
    auto a = std::make_shared<PoolAttributes>();
    a->kernel_h = a->kernel_w = a->stride_h = a->stride_w = 2;
    return emit(builder, Op::max_pool, next("max_pool"), {x}, a)[0];
  }
  TensorId global_mean(TensorId x) {
    ExpressionBuilder e;
    const double area = double(graph.at(x).shape.h * graph.at(x).shape.w);
    const Expression mean = e.finish({e.mul(e.input(0), e.constant(1.0 / area))}, 1);
    return emit(builder, Op::reduce, next("pool"), {x},
                std::make_shared<ReduceAttributes>(mean, ReduceKind::sum, true, false, false, true))[0];
  }
  TensorId linear(TensorId x, int64_t out) {
    const std::string name = next("fc");
    const Shape s = graph.at(x).shape;
    const TensorId flat = emit(builder, Op::view, name + ".flatten", {x},
                               std::make_shared<ViewAttributes>(1, 1, s.h * s.w * s.c))[0];
    const TensorId w = parameter(name + ".weight", {out, 1, 1, s.h * s.w * s.c}, ParameterKind::weight);
    const TensorId b = parameter(name + ".bias", {1, 1, 1, out}, ParameterKind::bias);
    auto a = std::make_shared<GemmAttributes>();
    a->transpose_b = true;
    return emit(builder, Op::gemm, name, {flat, w, b}, a)[0];
  }
  TensorId pointwise(const std::string& name, std::vector<TensorId> x, Expression e) {
    return emit(builder, Op::pointwise, name, std::move(x),
                std::make_shared<PointwiseAttributes>(std::move(e)))[0];
  }
  Graph finish(TensorId logits) {
    graph.outputs.push_back({"logits", logits});
    verify(graph, "ModelBuilder");
    return graph;
  }

  Graph graph;
  GraphBuilder builder{graph};

 private:
  std::string next(const char* what) { return what + std::to_string(count_++); }
  int count_ = 0;
};

// conv-bn-relu, a residual block with a gate, global pooling, a linear layer.
inline Graph residual_model(int64_t batch) {
  ModelBuilder m(batch, 6, 3);
  const TensorId stem = m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1)));
  const TensorId inner = m.relu(m.batch_norm(m.conv(stem, 8, 3, 1)));
  const TensorId outer = m.batch_norm(m.conv(inner, 8, 3, 1));
  const TensorId gate = m.tanh(m.linear(m.global_mean(outer), 8));
  const TensorId joined = m.relu(m.add(m.multiply(outer, gate), stem));
  const TensorId frozen = m.relu(m.batch_norm(m.conv(joined, 5, 3, 2), false));
  return m.finish(m.linear(frozen, 4));
}

// Two layers that see what came before them, as in DenseNet.
inline Graph dense_block(int64_t growth = 16, bool behind_pool = false) {
  ModelBuilder m(3, behind_pool ? 12 : 6, 3);
  const TensorId stem = m.conv(m.graph.input, 16, 3, 1);
  const TensorId a = behind_pool ? m.max_pool(stem) : stem;
  const TensorId b = m.conv(m.relu(m.batch_norm(a)), growth, 3, 1);
  const TensorId c = m.conv(m.relu(m.batch_norm(m.concat({a, b}))), growth, 3, 1);
  const TensorId last = m.relu(m.batch_norm(m.concat({a, b, c})));
  return m.finish(m.linear(m.global_mean(last), 4));
}

}  // namespace ren::test
