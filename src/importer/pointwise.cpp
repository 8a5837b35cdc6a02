// SPDX-License-Identifier: Apache-2.0
// Elementwise nodes: brings operands of any layouts to engine shapes that broadcast.
#include "engine/ops/pointwise/pointwise.h"

#include <algorithm>

#include "importer/import_context.h"

namespace ren::importer {

namespace {

struct Operand {
  const OnnxValue* value = nullptr;
  std::optional<double> literal;
  AxisMap map;  // aligned to the result's rank; unused for literals
  bool tensor = false;
};

// One atom of the result: an axis and its place in that axis.
struct Slot {
  int axis = 0, place = 0;
  int64_t extent = 1;
  bool batch = false;
  int dimension = 3;  // of the engine, where the operand that has it holds it
  int provider = 0, position = 0;
};

void align_rank(AxisMap& map, size_t rank) {
  while (map.axes.size() < rank) map.axes.insert(map.axes.begin(), std::vector<int>());
}

Dims broadcast(const std::vector<OnnxValue>& operands) {
  size_t rank = 0;
  for (const auto& v : operands) rank = std::max(rank, size_t(v.rank()));
  Dims result(rank, 1);
  for (const auto& v : operands) {
    const Dims dims = v.dims();
    for (size_t i = 0; i < dims.size(); ++i) {
      int64_t& out = result[rank - dims.size() + i];
      if (dims[i] != 1 && out != 1 && dims[i] != out)
        contradict("shapes do not broadcast: {} and {}", to_text(operands[0].dims()), to_text(dims));
      if (dims[i] != 1) out = dims[i];
    }
  }
  return result;
}

bool present(const AxisMap& map, int axis) { return !map.axes[size_t(axis)].empty(); }

// The engine's dimension that holds each atom of a tensor.
std::vector<int> dimensions_of(const AxisMap& map, const Shape& shape) {
  const int64_t extents[4] = {shape.n, shape.h, shape.w, shape.c};
  std::vector<int> result;
  int d = 0;
  int64_t inside = 1;
  for (const int64_t atom : map.atoms) {
    while (d < 3 && inside == extents[d]) {
      ++d;
      inside = 1;
    }
    inside *= atom;
    while (d < 3 && inside > extents[d]) {
      inside = std::max<int64_t>(1, inside / extents[d]);
      ++d;
    }
    result.push_back(d);
  }
  return result;
}

class Layouter {
 public:
  Layouter(ImportContext& context, std::vector<Operand>& operands, const Dims& result)
      : context_(context), operands_(operands), result_(result) {}

  void align_atoms() {
    // Twice, so that what the last operand split reaches the first ones as well.
    for (int round = 0; round < 2; ++round)
      for (Operand* a : mapped())
        for (Operand* b : mapped())
          for (size_t axis = 0; axis < result_.size(); ++axis)
            if (a != b && present(a->map, int(axis)) && present(b->map, int(axis)) &&
                !AxisMap::align(a->map, int(axis), b->map, int(axis)))
              refuse("", "the operands' axis {} is laid out in ways that cannot be joined", axis);
  }

  void find_slots() {
    for (size_t axis = 0; axis < result_.size(); ++axis) {
      const auto& all = mapped();
      // The largest tensor's order leads.
      for (size_t i = 0; i < all.size(); ++i) {
        if (!present(all[i]->map, int(axis))) continue;
        add_slots(*all[i], int(i), int(axis));
        break;
      }
    }
    std::stable_sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return std::tuple(!a.batch, a.dimension, a.provider, a.position) <
             std::tuple(!b.batch, b.dimension, b.provider, b.position);
    });
  }

  // Which engine dimension each slot goes to.
  void group() {
    std::vector<int> dims;
    for (const Slot& s : slots_) dims.push_back(s.dimension);
    if (!uniform(dims)) {
      dims.clear();
      std::vector<std::vector<size_t>> groups;
      for (size_t i = 0; i < slots_.size(); ++i) {
        const bool fresh = groups.empty() || slots_[i].batch || slots_[groups.back()[0]].batch ||
                           mask(slots_[i]) != mask(slots_[groups.back()[0]]);
        if (fresh) groups.emplace_back();
        groups.back().push_back(i);
      }
      const bool has_batch = !groups.empty() && slots_[groups[0][0]].batch;
      const size_t free = groups.size() - (has_batch ? 1 : 0);
      if (free > 3)
        refuse("", "the operands would need a broadcast over {} separate dimensions", groups.size());
      dims.resize(slots_.size());
      for (size_t g = 0; g < groups.size(); ++g) {
        const int d = has_batch && g == 0 ? 0 : 4 - int(groups.size() - g);
        for (const size_t i : groups[g]) dims[i] = d;
      }
    }
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].dimension = dims[i];
  }

  Groups groups_for(const Operand& operand) const {
    Groups groups;
    for (const Slot& s : slots_) {
      const auto& axis = operand.map.axes[size_t(s.axis)];
      if (!axis.empty()) groups[size_t(s.dimension)].push_back(axis[size_t(s.place)]);
    }
    return groups;
  }

  AxisMap result_map() const {
    AxisMap map;
    map.axes.resize(result_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      map.atoms.push_back(slots_[i].extent);
      if (slots_[i].batch) map.batch = int(i);
    }
    for (size_t axis = 0; axis < result_.size(); ++axis)
      for (int place = 0;; ++place) {
        const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) {
          return s.axis == int(axis) && s.place == place;
        });
        if (found == slots_.end()) break;
        map.axes[axis].push_back(int(found - slots_.begin()));
      }
    return map;
  }

 private:
  // Largest tensors first, then parameters.
  std::vector<Operand*> mapped() {
    std::vector<Operand*> list;
    for (Operand& o : operands_)
      if (!o.literal) list.push_back(&o);
    std::stable_sort(list.begin(), list.end(), [](const Operand* a, const Operand* b) {
      if (a->tensor != b->tensor) return a->tensor;
      return product(a->map.atoms) > product(b->map.atoms);
    });
    return list;
  }

  void add_slots(const Operand& operand, int provider, int axis) {
    std::vector<int> dims(operand.map.atoms.size(), 3);
    if (operand.tensor)
      dims = dimensions_of(operand.map, context_.builder.graph().at(operand.value->id).shape);
    const auto& atoms = operand.map.axes[size_t(axis)];
    for (size_t k = 0; k < atoms.size(); ++k) {
      Slot slot;
      slot.axis = axis;
      slot.place = int(k);
      slot.extent = operand.map.atoms[size_t(atoms[k])];
      slot.batch = atoms[k] == operand.map.batch;
      slot.dimension = slot.batch ? 0 : std::max(1, dims[size_t(atoms[k])]);
      slot.provider = provider;
      slot.position = atoms[k];
      slots_.push_back(slot);
    }
  }

  std::vector<bool> mask(const Slot& slot) const {
    std::vector<bool> result;
    for (const Operand& o : operands_)
      if (!o.literal) result.push_back(present(o.map, slot.axis));
    return result;
  }

  bool uniform(const std::vector<int>& dims) const {
    for (size_t i = 1; i < slots_.size(); ++i)
      if (dims[i] < dims[i - 1] || (dims[i] == dims[i - 1] && mask(slots_[i]) != mask(slots_[i - 1])))
        return false;
    return true;
  }

  ImportContext& context_;
  std::vector<Operand>& operands_;
  const Dims& result_;
  std::vector<Slot> slots_;
};

// A constant or parameter whose extent along the batch axis is the batch size: usable only if
// it repeats itself.
void drop_batch_axis(ImportContext& context, OnnxValue& value, size_t axis) {
  HostValue content = context.host(value);
  const Dims dims = value.dims();
  const int64_t outer = product(std::span(dims).first(axis)), extent = dims[axis];
  const int64_t inner = product(std::span(dims).subspan(axis + 1));
  HostValue first = content;
  first.dims[axis] = 1;
  first.resize(size_t(outer * inner));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t e = 0; e < extent; ++e)
      for (int64_t i = 0; i < inner; ++i) {
        const size_t from = size_t((o * extent + e) * inner + i), to = size_t(o * inner + i);
        if (content.at(from) != content.at(size_t(o * extent * inner + i)))
          refuse("export with a dynamic batch", "a constant of shape {} differs from sample to sample",
                 to_text(dims));
        if (first.is_real()) {
          first.reals[to] = content.reals[from];
        } else {
          first.ints[to] = content.ints[from];
        }
      }
  first.batch.clear();
  value = ImportContext::make_host(std::move(first));
}

}  // namespace

OnnxValue ImportContext::pointwise(const std::vector<OnnxValue>& given, const Build& build,
                                   PointwiseOptions options) {
  std::vector<OnnxValue> values = given;
  const Dims result = broadcast(values);
  int batch_axis = -1;
  for (const auto& v : values) {
    if (!v.is(Kind::tensor)) continue;
    for (int axis = 0; axis < v.rank(); ++axis) {
      if (!v.map.has_batch(axis)) continue;
      const int aligned = axis + int(result.size()) - v.rank();
      if (batch_axis >= 0 && batch_axis != aligned)
        refuse("keep the batch as the first axis", "the operands have the batch in different axes");
      batch_axis = aligned;
    }
  }
  std::vector<Operand> operands;
  for (auto& v : values) {
    const int own_axis = batch_axis - (int(result.size()) - v.rank());
    if (v.known() && own_axis >= 0 && v.map.extent(own_axis) > 1) drop_batch_axis(*this, v, size_t(own_axis));
  }
  for (const auto& v : values) {
    Operand operand;
    operand.value = &v;
    operand.map = v.map;
    operand.tensor = v.is(Kind::tensor);
    if (v.known()) {
      const bool trained = v.is(Kind::weight) && decide(v, options.role).trained;
      const HostValue content = host(v);
      if (content.depends_on_batch()) refuse("", "a constant's value depends on the batch size");
      if (content.elements() == 0) contradict("an operand of shape {} has no elements", to_text(v.dims()));
      if (!trained && v.is(Kind::host)) refuse_weight_graph(content);
      if (!trained && content.is_uniform()) {
        operand.literal = content.at(0);
        note_constant(v, v.is(Kind::weight) ? decide(v, options.role).reason : "used while importing");
      }
    }
    align_rank(operand.map, result.size());
    operands.push_back(std::move(operand));
  }
  Layouter layouter(*this, operands, result);
  layouter.align_atoms();
  layouter.find_slots();
  layouter.group();

  ExpressionBuilder e;
  std::vector<TensorId> inputs;
  std::vector<ren::Value> arguments;
  for (Operand& operand : operands) {
    if (operand.literal) {
      arguments.push_back(e.constant(*operand.literal));
      continue;
    }
    TensorId id = kNoTensor;
    if (operand.tensor) {
      OnnxValue refined = *operand.value;
      refined.map = operand.map;
      id = arrange(refined, layouter.groups_for(operand)).id;
    } else {
      id = parameter(*operand.value, operand.map, layouter.groups_for(operand), options.kind, options.role);
    }
    const auto seen = std::find(inputs.begin(), inputs.end(), id);
    arguments.push_back(e.input(int(seen - inputs.begin())));
    if (seen == inputs.end()) inputs.push_back(id);
  }
  const ren::Value root = build(e, arguments);
  std::vector<int32_t> kept;
  const Expression full = e.finish({root}, int(inputs.size()));
  Expression expression = compact_inputs(full, kept);
  std::vector<TensorId> used;
  for (const int32_t i : kept) used.push_back(inputs[size_t(i)]);
  if (used.empty()) refuse("", "the result is constant, but its shape follows from a tensor");
  // The shape follows from the operands, so an unused one that is larger must stay.
  if (used.size() != inputs.size()) {
    Shape shape = broadcast_shape(builder.graph(), inputs);
    if (!(shape == broadcast_shape(builder.graph(), used)))
      refuse("", "an operand serves for its shape alone");
  }
  auto attributes = std::make_shared<PointwiseAttributes>(std::move(expression));
  attributes->training_only = options.training_only;
  const bool random = attributes->expression.uses_random();
  if (random) {
    if (builder.graph().scalars.empty()) builder.add_scalars();
    used.push_back(builder.graph().scalar(Scalar::random_state));
  }
  const TensorId id = node(Op::pointwise, used, attributes)[0];
  return make_tensor(id, layouter.result_map(), options.boolean);
}

}  // namespace ren::importer
