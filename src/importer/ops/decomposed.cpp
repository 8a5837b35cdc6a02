// SPDX-License-Identifier: Apache-2.0
// Layers that exporters take apart and that train better whole.
#include "importer/operators.h"

namespace ren::importer {

namespace {

// Walks along the file's nodes.
class Walker {
 public:
  explicit Walker(const NodeView& node) : context_(node.context), graph_(node.context.file.graph()) {}

  // The consumer of `value` with this op; -1 unless there is exactly one and `value` has just
  // `readers` readers, none of them the model's output.
  int next(const std::string& value, const char* op, size_t readers) const {
    const auto found = context_.consumers.find(value);
    if (found == context_.consumers.end() || found->second.size() != readers ||
        context_.graph_outputs.count(value))
      return -1;
    int result = -1;
    for (const int i : found->second) {
      if (graph_.node(i).op_type() != op || graph_.node(i).output_size() != 1) continue;
      if (result >= 0 && result != i) return -1;
      result = i;
    }
    return result;
  }
  const onnx::NodeProto& at(int i) const { return graph_.node(i); }
  // The other operand of a node with two.
  std::string other(int i, const std::string& one) const {
    const auto& node = graph_.node(i);
    if (node.input_size() != 2) return {};
    return node.input(0) == one ? node.input(1) : node.input(1) == one ? node.input(0) : std::string();
  }

 private:
  ImportContext& context_;
  const onnx::GraphProto& graph_;
};

bool is_scalar(ImportContext& context, const std::string& name, double& value) {
  const OnnxValue& v = context.value(name);
  if (!v.known() || product(v.dims()) != 1) return false;
  value = context.host(v).at(0);
  return true;
}

// Axes of a reduction as one tail; -1 otherwise.
int tail_axis(const NodeView& node, int rank) {
  std::vector<int64_t> axes = node.integers("axes");
  if (node.has(1)) axes = node.ints_in(1);
  if (axes.empty() || node.integer("keepdims", 1) == 0) return -1;
  std::set<int> set;
  for (const int64_t a : axes) set.insert(node.axis(a, rank));
  const int first = *set.begin();
  return int(set.size()) == rank - first && *set.rbegin() == rank - 1 ? first : -1;
}

}  // namespace

bool import_decomposed_layer_norm(const NodeView& mean) {
  ImportContext& context = mean.context;
  const OnnxValue& x = mean.in(0);
  if (!x.is(Kind::tensor) || x.rank() < 2) return false;
  const int axis = tail_axis(mean, x.rank());
  if (axis < 1) return false;
  const Walker walk(mean);
  std::set<int> taken;
  const auto step = [&](const std::string& value, const char* op, size_t readers) {
    const int i = walk.next(value, op, readers);
    if (i >= 0) taken.insert(i);
    return i;
  };
  const int sub = step(mean.proto.output(0), "Sub", 1);
  if (sub < 0 || walk.at(sub).input(0) != mean.proto.input(0)) return false;
  const std::string centred = walk.at(sub).output(0);
  double two = 0, epsilon = 0;
  const int pow = step(centred, "Pow", 2);
  if (pow < 0 || walk.at(pow).input(0) != centred) return false;
  if (!is_scalar(context, walk.at(pow).input(1), two) || two != 2) return false;
  const int variance = step(walk.at(pow).output(0), "ReduceMean", 1);
  if (variance < 0 || tail_axis(NodeView(context, walk.at(variance), variance), x.rank()) != axis)
    return false;
  const int add = step(walk.at(variance).output(0), "Add", 1);
  if (add < 0 || !is_scalar(context, walk.other(add, walk.at(variance).output(0)), epsilon)) return false;
  const int root = step(walk.at(add).output(0), "Sqrt", 1);
  const int div = root < 0 ? -1 : step(walk.at(root).output(0), "Div", 1);
  if (div < 0 || walk.at(div).input(0) != centred) return false;

  // Scale and bias where they are plain tensors of the normalised shape.
  const Dims dims = x.dims(), normalised(dims.begin() + axis, dims.end());
  OnnxValue scale, bias;
  std::string result = walk.at(div).output(0);
  const auto affine = [&](const char* op, OnnxValue& into) {
    const int i = walk.next(result, op, 1);
    if (i < 0 || walk.other(i, result).empty()) return;
    const NodeView user(context, walk.at(i), i);
    const OnnxValue& v = user.in(walk.at(i).input(0) == result ? 1 : 0);
    if (!v.is(Kind::weight) || v.dims() != normalised) return;
    into = v;
    taken.insert(i);
    result = walk.at(i).output(0);
  };
  affine("Mul", scale);
  if (scale.is(Kind::weight)) affine("Add", bias);
  context.values[result] = layer_normalise(mean, x, axis, scale, bias, float(epsilon));
  context.consumed.insert(taken.begin(), taken.end());
  return true;
}

}  // namespace ren::importer
