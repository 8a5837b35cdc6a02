// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/group_norm/group_norm.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "importer/operators.h"

namespace ren::importer {

namespace {

// A per-channel vector for x's axis, in the order that x's channels have in memory.
TensorId channel_vector(ImportContext& context, const OnnxValue& v, const AxisMap& x, int axis,
                        ParameterKind kind, WeightRole role) {
  AxisMap map = v.map;
  const std::vector<int> order = ordered_like(x, axis, map, 0);
  return context.parameter(v, map, Groups{{{}, {}, {}, order}}, kind, role);
}

void check_vector(const NodeView& node, int input, const char* what, int64_t extent) {
  const OnnxValue& v = node.required(input);
  if (!v.known())
    refuse("", "{} is computed from the model's input (normalisation without running statistics)", what);
  if (v.rank() != 1 || v.map.extent(0) != extent)
    contradict("{} channels need a {} of shape [{}], it has {}", extent, what, extent, to_text(v.dims()));
}

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& g) { return matches_glob(name, g); });
}

bool is_training(const NodeView& node) {
  ImportContext& context = node.context;
  if (matches(context.options.freeze_norms, node.name)) return false;
  if (matches(context.options.train_norms, node.name)) return true;
  if (!context.norms_marked) return true;
  return node.opset >= 14 ? node.integer("training_mode", 0) != 0 : node.outputs() > 1;
}

float keep_of(const NodeView& node, bool training) {
  const double momentum = node.real("momentum", 0.9);
  if (!(momentum >= 0 && momentum <= 1)) contradict("momentum is {}", momentum);
  if (momentum < 1 || !training) return float(momentum);
  node.context.warn(
      fmt::format("BatchNormalization nodes have momentum 1, with which running statistics never move; {} is "
                  "used instead",
                  node.context.options.fallback_norm_keep));
  return node.context.options.fallback_norm_keep;
}

std::string stem_of(const NodeView& node) {
  const std::string& copy = node.in(1).copy;
  const std::string scale = copy.empty() ? node.proto.input(1) : copy;
  const std::string suffix = ".weight";
  if (scale.size() > suffix.size() && scale.compare(scale.size() - suffix.size(), suffix.size(), suffix) == 0)
    return scale.substr(0, scale.size() - suffix.size());
  return node.name;
}

// The same module used twice has the same four tensors, which no exporter's merging of equal
// values can produce: it would need four different values.
std::string module_key(const NodeView& node) {
  std::set<std::string> distinct;
  std::string key;
  for (int i = 1; i < 5; ++i) {
    distinct.insert(node.proto.input(i));
    key += node.proto.input(i) + '\n';
  }
  return distinct.size() == 4 ? key : std::string();
}

}  // namespace

void import_batch_normalization(const NodeView& node) {
  ImportContext& context = node.context;
  const OnnxValue& x = node.required(0);
  if (x.known())
    refuse(
        "fold the weights before exporting (parametrize.remove_parametrizations)",
        "normalises a weight (weight standardisation); weights that are themselves computed are not trained");
  node.tensor_in(0);
  for (int i = 1; i < 5; ++i)
    if (!node.has(i))
      refuse("export with track_running_stats=True",
             "input {} is empty; scale, bias, mean and variance are needed", i);
  if (x.rank() < 2) contradict("the input has shape {}", to_text(x.dims()));
  if (x.rank() > 4) refuse("", "the input has rank {}; up to 4 is supported", x.rank());
  if (x.map.has_batch(1)) refuse("keep the batch as the first axis", "the channel axis is the batch");
  if (node.opset < 9 && node.integer("spatial", 1) != 1) refuse("", "spatial=0 is not supported");
  const int64_t channels = x.map.extent(1);
  check_vector(node, 1, "scale", channels);
  check_vector(node, 2, "bias", channels);
  check_vector(node, 3, "mean", channels);
  check_vector(node, 4, "variance", channels);
  for (int i = 1; i < 5; ++i)
    if (i > 1 && node.wants(i) && node.opset < 14) refuse("", "output {} is used", i);
  ++context.norms;

  auto attributes = std::make_shared<BatchNormAttributes>();
  attributes->training = is_training(node);
  attributes->epsilon = float(node.real("epsilon", 1e-5));
  attributes->keep = keep_of(node, attributes->training);
  if (!(attributes->epsilon >= 0)) contradict("epsilon is {}", attributes->epsilon);

  const OnnxValue image = context.arrange(x, context.with_tail(x, x.map.axes[1]));
  std::vector<TensorId> inputs{image.id};
  inputs.push_back(
      channel_vector(context, node.in(1), x.map, 1, ParameterKind::norm_scale, WeightRole::norm_scale));
  inputs.push_back(
      channel_vector(context, node.in(2), x.map, 1, ParameterKind::norm_bias, WeightRole::norm_bias));
  const std::string key = module_key(node);
  const auto shared = context.shared_statistics.find(key);
  if (!key.empty() && shared != context.shared_statistics.end()) {
    inputs.push_back(shared->second.first);
    inputs.push_back(shared->second.second);
  } else {
    const char* const names[2] = {".running_mean", ".running_var"};
    for (int i = 0; i < 2; ++i) {
      AxisMap map = node.in(3 + i).map;
      const std::vector<int> order = ordered_like(x.map, 1, map, 0);
      inputs.push_back(
          context.running_statistic(node.in(3 + i), map, order, node, 3 + i, stem_of(node) + names[i]));
    }
    if (!key.empty()) context.shared_statistics[key] = {inputs[3], inputs[4]};
  }
  if (attributes->training) ++context.training_norms;
  const TensorId y = context.node(Op::batch_norm, inputs, attributes)[0];
  node.give(0, context.make_tensor(y, image.map));
}

OnnxValue layer_normalise(const NodeView& node, const OnnxValue& x, int axis, const OnnxValue& scale,
                          const OnnxValue& bias, float epsilon) {
  ImportContext& context = node.context;
  std::vector<int> tail;
  for (int a = axis; a < x.rank(); ++a) {
    if (x.map.has_batch(a)) refuse("", "normalises over the batch");
    tail.insert(tail.end(), x.map.axes[size_t(a)].begin(), x.map.axes[size_t(a)].end());
  }
  const OnnxValue rows = context.arrange(x, context.with_tail(x, tail));
  const Dims dims = x.dims(), normalised(dims.begin() + axis, dims.end());
  std::vector<TensorId> inputs{rows.id};
  for (const OnnxValue* v : {&scale, &bias}) {
    if (v->is(Kind::absent)) {
      inputs.push_back(kNoTensor);
      continue;
    }
    const bool is_scale = v == &scale;
    const char* what = is_scale ? "scale" : "bias";
    if (!v->known()) refuse("", "the {} is computed from the model's input", what);
    if (v->dims() != normalised)
      contradict("normalises over {}, but the {} has shape {}", to_text(normalised), what,
                 to_text(v->dims()));
    // The order that the normalised atoms have in x's memory.
    AxisMap map = v->map;
    std::vector<std::pair<int, int>> places;  // x's atom, v's atom
    for (int a = axis; a < x.rank(); ++a) ordered_like(x.map, a, map, a - axis);
    for (int a = axis; a < x.rank(); ++a)
      for (size_t k = 0; k < x.map.axes[size_t(a)].size(); ++k)
        places.emplace_back(x.map.axes[size_t(a)][k], map.axes[size_t(a - axis)][k]);
    std::sort(places.begin(), places.end());
    std::vector<int> order;
    for (const auto& place : places) order.push_back(place.second);
    inputs.push_back(context.parameter(*v, map, Groups{{{}, {}, {}, order}},
                                       is_scale ? ParameterKind::norm_scale : ParameterKind::norm_bias,
                                       is_scale ? WeightRole::norm_scale : WeightRole::norm_bias));
  }
  auto attributes = std::make_shared<LayerNormAttributes>();
  attributes->epsilon = epsilon;
  ++context.norms;
  const TensorId y = context.node(Op::layer_norm, inputs, attributes)[0];
  return context.make_tensor(y, rows.map);
}

void import_layer_normalization(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  const int axis = node.axis(node.integer("axis", -1), x.rank());
  if (node.wants(1) || node.wants(2)) refuse("", "the outputs mean and inverse deviation are used");
  node.give(0,
            layer_normalise(node, x, axis, node.required(1), node.in(2), float(node.real("epsilon", 1e-5))));
}

namespace {

struct Affine {
  OnnxValue scale, bias;  // [G] or [C]
};

// True for the constant ones or zeros that exporters feed to a decomposed normalisation.
bool is_neutral(ImportContext& context, const OnnxValue& v, double neutral, WeightRole role) {
  const HostValue content = context.host(v);
  if (!content.is_uniform() || content.at(0) != neutral) return false;
  if (v.is(Kind::weight) && context.decide(v, role).trained &&
      is_dotted_name(context.file.tensors[size_t(v.file_tensor)].name))
    return false;
  context.note_constant(v, "ones or zeros of a decomposed normalisation");
  return true;
}

OnnxValue scale_and_shift(ImportContext& context, OnnxValue y, const Affine& affine, int channel_axis) {
  const auto widen = [&](OnnxValue v) {
    v.map.axes.resize(size_t(y.rank() - channel_axis));
    return v;
  };
  ImportContext::PointwiseOptions options;
  if (!is_neutral(context, affine.scale, 1, WeightRole::norm_scale)) {
    options.role = WeightRole::norm_scale;
    options.kind = ParameterKind::norm_scale;
    y = context.pointwise(
        {y, widen(affine.scale)}, [](ExpressionBuilder& e, auto v) { return e.mul(v[0], v[1]); }, options);
  }
  if (!is_neutral(context, affine.bias, 0, WeightRole::norm_bias)) {
    options.role = WeightRole::norm_bias;
    options.kind = ParameterKind::norm_bias;
    y = context.pointwise(
        {y, widen(affine.bias)}, [](ExpressionBuilder& e, auto v) { return e.add(v[0], v[1]); }, options);
  }
  return y;
}

// Normalises over all axes but the batch and `group_atoms`.
OnnxValue group_normalise(const NodeView& node, const OnnxValue& x, std::vector<int> group_atoms,
                          float epsilon) {
  ImportContext& context = node.context;
  // C is made of the group's atoms and what follows them directly in memory.
  std::sort(group_atoms.begin(), group_atoms.end());
  std::vector<int> tail = group_atoms, rest;
  const int first = group_atoms.empty() ? int(x.map.atoms.size()) : group_atoms.front();
  for (int atom = 0; atom < int(x.map.atoms.size()); ++atom) {
    if (atom == x.map.batch || std::find(group_atoms.begin(), group_atoms.end(), atom) != group_atoms.end())
      continue;
    const bool inner = !group_atoms.empty() && atom > group_atoms.back();
    (inner && first > 0 ? tail : rest).push_back(atom);
  }
  const bool contiguous = group_atoms.empty() || group_atoms.back() - first + 1 == int(group_atoms.size());
  if (!contiguous) refuse("", "the groups are interleaved with what is normalised over");
  const int64_t groups = x.map.extent_of(group_atoms);
  // With one group, all of C belongs to it.
  if (group_atoms.empty() && !rest.empty()) {
    tail = {rest.back()};
    rest.pop_back();
  }
  Groups layout = context.with_tail(x, tail);
  layout[3] = tail;
  const OnnxValue image = context.arrange(x, layout);
  auto attributes = std::make_shared<GroupNormAttributes>();
  attributes->groups = groups;
  attributes->epsilon = epsilon;
  ++context.norms;
  const TensorId y = context.node(Op::group_norm, {image.id, kNoTensor, kNoTensor}, attributes)[0];
  return context.make_tensor(y, image.map);
}

void check_affine(const NodeView& node, int64_t extent) {
  check_vector(node, 1, "scale", extent);
  check_vector(node, 2, "bias", extent);
}

}  // namespace

void import_instance_normalization(const NodeView& node) {
  const OnnxValue& x = node.tensor_in(0);
  if (x.rank() < 3) contradict("the input has shape {}", to_text(x.dims()));
  if (x.map.batch_axis() != 0) refuse("keep the batch as the first axis", "the first axis isn't the batch");
  check_affine(node, x.map.extent(1));
  OnnxValue y = group_normalise(node, x, x.map.axes[1], float(node.real("epsilon", 1e-5)));
  node.give(0, scale_and_shift(node.context, y, {node.in(1), node.in(2)}, 1));
}

void import_group_normalization(const NodeView& node) {
  OnnxValue x = node.tensor_in(0);
  if (x.rank() < 3) contradict("the input has shape {}", to_text(x.dims()));
  if (x.map.batch_axis() != 0) refuse("keep the batch as the first axis", "the first axis isn't the batch");
  const int64_t channels = x.map.extent(1), groups = node.integer("num_groups", 0);
  if (groups < 1 || channels % groups != 0)
    contradict("{} channels don't divide into {} groups", channels, groups);
  // Version 18 scales each group, version 21 each channel; exporters mixed them up, so the extent
  // decides where it can.
  const bool per_group = node.required(1).map.atoms != Dims{channels} && node.opset < 21;
  check_affine(node, per_group && groups != channels ? groups : channels);
  Dims split = x.dims();
  split.erase(split.begin() + 1);
  split.insert(split.begin() + 1, {groups, channels / groups});
  if (!x.map.reshape(split)) refuse("", "the channels are laid out across the groups");
  OnnxValue y = group_normalise(node, x, x.map.axes[1], float(node.real("epsilon", 1e-5)));
  const Affine affine{node.in(1), node.in(2)};
  const bool on_groups = per_group && groups != channels;
  if (on_groups) y = scale_and_shift(node.context, y, affine, 1);
  Dims joined = y.dims();
  joined.erase(joined.begin() + 1);
  joined[1] = channels;
  if (!y.map.reshape(joined)) refuse("", "the channels cannot be joined again");
  if (!on_groups) y = scale_and_shift(node.context, y, affine, 1);
  node.give(0, y);
}

}  // namespace ren::importer
