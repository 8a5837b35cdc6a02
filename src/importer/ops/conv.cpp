// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/conv/conv.h"

#include "engine/ops/gemm/gemm.h"
#include "importer/operators.h"
#include "importer/window.h"

namespace ren::importer {

namespace {

// Depthwise with one and the same kernel for all channels, as blur layers have: the role says
// weight, though no one learned it.
void warn_of_fixed_filter(const NodeView& node, const OnnxValue& w, int64_t groups) {
  ImportContext& context = node.context;
  if (groups < 2 || !w.is(Kind::weight) || w.map.extent(1) != 1 ||
      !context.decide(w, WeightRole::weight).trained)
    return;
  const HostValue content = context.host(w);
  const int64_t each = content.elements() / content.dims[0];
  for (int64_t i = each; i < content.elements(); ++i)
    if (content.reals[size_t(i)] != content.reals[size_t(i % each)]) return;
  context.warn(fmt::format(
      "'{}' holds one kernel for all channels and is trained: if it is a fixed filter (blur), freeze it",
      node.proto.input(1)));
}

}  // namespace

void import_conv(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.tensor_in(0);
  const OnnxValue& w = node.required(1);
  const int rank = x.rank();
  if (rank != 3 && rank != 4)
    refuse("", "the input has rank {}; 1-D and 2-D convolutions (rank 3 and 4) are supported", rank);
  if (!w.known()) refuse("", "the weight '{}' is computed from the model's input", node.proto.input(1));
  if (w.rank() != rank) contradict("input of rank {}, weight of shape {}", rank, to_text(w.dims()));
  const Dims weight = w.dims();
  const int64_t groups = node.integer("group", 1);
  if (groups < 1) contradict("group is {}", groups);
  const int64_t channels = x.map.extent(1);
  if (product(weight) == 0) contradict("the weight of shape {} has no elements", to_text(weight));
  if (weight[1] * groups != channels)
    contradict("{} input channels, but weight {} with group {} takes {}", channels, to_text(weight), groups,
               weight[1] * groups);
  if (weight[0] % groups != 0)
    contradict("{} output channels don't divide into {} groups", weight[0], groups);
  const Dims kernel = node.integers("kernel_shape", {weight.begin() + 2, weight.end()});
  if (!std::equal(kernel.begin(), kernel.end(), weight.begin() + 2, weight.end()))
    contradict("kernel_shape {} and weight {} differ", to_text(kernel), to_text(weight));

  const OnnxValue image = context.arrange(x, channels_first(rank));
  const Shape shape = context.builder.graph().at(image.id).shape;
  const Window window = read_window(node, kernel, shape, false);
  auto attributes = std::make_shared<ConvAttributes>();
  set_window(*attributes, window);
  attributes->groups = groups;

  std::vector<TensorId> inputs{image.id};
  const auto& axes = w.map.axes;
  const Groups order{axes[0], rank == 4 ? axes[2] : std::vector<int>{}, axes[size_t(rank) - 1], axes[1]};
  inputs.push_back(context.parameter(w, w.map, order, ParameterKind::weight, WeightRole::weight));
  warn_of_fixed_filter(node, w, groups);
  const OnnxValue& bias = node.in(2);
  if (bias.is(Kind::tensor)) refuse("", "the bias is computed from the model's input");
  if (!bias.is(Kind::absent)) {
    if (bias.rank() != 1 || bias.map.extent(0) != weight[0])
      contradict("weight {} needs a bias of shape [{}], it has {}", to_text(weight), weight[0],
                 to_text(bias.dims()));
    const HostValue content = context.host(bias);
    const std::string& name = node.proto.input(2);
    const bool renamed = is_generated_name(node.proto.input(1)) && w.is(Kind::weight);
    const bool folded = bias.is(Kind::weight) && (renamed || name == node.proto.input(1) + "_bias");
    if (folded) ++context.folded_convs;
    const WeightRole role = folded ? WeightRole::folded_bias : WeightRole::bias;
    const bool zero = content.is_uniform() && content.at(0) == 0;
    const bool invented = bias.is(Kind::host) || !context.decide(bias, role).trained;
    if (zero && invented) {
      context.note_constant(bias, "zeros that the exporter gave a layer without bias");
    } else {
      inputs.push_back(context.vector(bias, ParameterKind::bias, role));
    }
  }
  const TensorId y = context.node(Op::conv, inputs, attributes)[0];
  node.give(0, context.image(y, channels_first(rank)));
}

namespace {

// y = alpha x w (+ bias): x's last axis `k` meets w's axis `wk`; w's other axis is the output.
OnnxValue matrix_product(const NodeView& node, const OnnxValue& x, int k, const OnnxValue& w, int wk,
                         float alpha, const OnnxValue* bias) {
  ImportContext& context = node.context;
  if (x.map.has_batch(k)) refuse("keep the batch as the first axis", "the batch axis is summed over");
  if (x.map.extent(k) != w.map.extent(wk))
    contradict("{} input features, but the weight {} takes {}", x.map.extent(k), to_text(w.dims()),
               w.map.extent(wk));
  if (product(w.map.atoms) == 0) contradict("the weight {} has no elements", to_text(w.dims()));
  const OnnxValue rows = context.arrange(x, context.with_tail(x, x.map.axes[size_t(k)]));
  AxisMap map = w.map;
  const std::vector<int> inner = ordered_like(x.map, k, map, wk);
  const std::vector<int> outer = map.axes[size_t(1 - wk)];
  std::vector<TensorId> inputs{rows.id};
  inputs.push_back(
      context.parameter(w, map, Groups{outer, {}, {}, inner}, ParameterKind::weight, WeightRole::weight));
  if (bias) inputs.push_back(context.vector(*bias, ParameterKind::bias, WeightRole::bias));
  auto attributes = std::make_shared<GemmAttributes>();
  attributes->transpose_b = true;
  attributes->alpha = alpha;
  const TensorId y = context.node(Op::gemm, inputs, attributes)[0];

  // The rows keep their atoms; the last axis is one new atom.
  AxisMap result;
  std::vector<int> now(rows.map.atoms.size(), -1);
  const auto& gone = rows.map.axes[size_t(k)];
  for (size_t i = 0; i < now.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), int(i)) != gone.end()) continue;
    now[i] = int(result.atoms.size());
    if (int(i) == rows.map.batch) result.batch = now[i];
    result.atoms.push_back(rows.map.atoms[i]);
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    result.axes.emplace_back();
    if (axis != k) {
      for (const int atom : rows.map.axes[size_t(axis)]) result.axes.back().push_back(now[size_t(atom)]);
    } else if (w.map.extent(1 - wk) != 1) {
      result.axes.back().push_back(int(result.atoms.size()));
      result.atoms.push_back(w.map.extent(1 - wk));
    }
  }
  return context.make_tensor(y, result);
}

// A vector over the outputs that a matrix product can add itself, as a rank-1 value.
bool is_row_bias(const OnnxValue& c, int64_t outputs) {
  if (!c.known() || c.rank() < 1 || c.map.extent(c.rank() - 1) != outputs) return false;
  return product(c.map.atoms) == outputs;
}

OnnxValue add_scaled(ImportContext& context, const OnnxValue& y, const OnnxValue& c, double beta) {
  ImportContext::PointwiseOptions options;
  options.role = WeightRole::bias;
  options.kind = ParameterKind::bias;
  return context.pointwise(
      {y, c},
      [beta](ExpressionBuilder& e, auto v) {
        return e.add(v[0], beta == 1 ? v[1] : e.mul(v[1], e.constant(beta)));
      },
      options);
}

}  // namespace

void import_gemm(const NodeView& node) {
  ImportContext& context = node.context;
  OnnxValue a = node.tensor_in(0);
  const OnnxValue& b = node.required(1);
  if (!b.known()) refuse("", "both factors are computed from the model's input; one must be a weight");
  if (a.rank() != 2 || b.rank() != 2)
    contradict("factors of shape {} and {}; both must be matrices", to_text(a.dims()), to_text(b.dims()));
  if (node.integer("transA", 0)) std::swap(a.map.axes[0], a.map.axes[1]);
  const int wk = node.integer("transB", 0) ? 1 : 0;
  if (a.map.has_batch(1)) refuse("keep the batch as the first axis", "the batch axis is summed over");
  if (a.map.extent(1) != b.map.extent(wk))
    contradict("{} input features, but the weight {} takes {}", a.map.extent(1), to_text(b.dims()),
               b.map.extent(wk));
  const double alpha = node.real("alpha", 1), beta = node.real("beta", 1);
  const OnnxValue& c = node.in(2);
  const int64_t outputs = b.map.extent(1 - wk);
  const bool has_c = !c.is(Kind::absent) && beta != 0;
  const bool direct = has_c && beta == 1 && is_row_bias(c, outputs);
  if (has_c) {
    const Dims dims = c.dims();
    const bool fits = dims.size() <= 2 && (dims.empty() || dims.back() == 1 || dims.back() == outputs);
    if (!fits) contradict("a product with {} columns and a C of shape {}", outputs, to_text(dims));
  }
  OnnxValue y = matrix_product(node, a, 1, b, wk, float(alpha), direct ? &c : nullptr);
  if (has_c && !direct) y = add_scaled(context, y, c, beta);
  node.give(0, y);
}

void import_matmul(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.required(0);
  const OnnxValue& w = node.required(1);
  if (!x.is(Kind::tensor) || !w.known())
    refuse("", "only a product of an activation with a weight is supported, in this order (no attention)");
  OnnxValue matrix = w;
  while (matrix.rank() > 2 && matrix.map.extent(0) == 1) matrix.map.axes.erase(matrix.map.axes.begin());
  if (matrix.rank() != 2 || x.rank() < 2)
    refuse("", "factors of shape {} and {}; the weight must be one matrix", to_text(x.dims()),
           to_text(w.dims()));
  // A bias that follows alone is taken along.
  const std::string& result = node.proto.output(0);
  const int next = context.sole_consumer(result);
  if (next >= 0 && context.file.graph().node(next).op_type() == "Add") {
    const onnx::NodeProto& add = context.file.graph().node(next);
    const int other = add.input_size() == 2 && add.input(0) == result ? 1 : 0;
    const OnnxValue& bias = NodeView(context, add, next).in(other);
    if (add.output_size() == 1 && add.input(1 - other) == result && is_row_bias(bias, matrix.map.extent(1)) &&
        bias.rank() == 1 && bias.is(Kind::weight)) {
      context.values[add.output(0)] = matrix_product(node, x, x.rank() - 1, matrix, 0, 1.0f, &bias);
      context.consumed.insert(next);
      return;
    }
  }
  node.give(0, matrix_product(node, x, x.rank() - 1, matrix, 0, 1.0f, nullptr));
}

}  // namespace ren::importer
