// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/ops/op.h"

namespace ren {

#define REN_OP(name, folder, backends) const OpDefinition& name##_definition();
#include "engine/ir/op_list.def"
#undef REN_OP

const OpDefinition& definition_of(Op op) {
  switch (op) {
#define REN_OP(name, folder, backends) \
  case Op::name:                       \
    return name##_definition();
#include "engine/ir/op_list.def"
#undef REN_OP
  }
  fail(StatusCode::internal, "unknown op {}", int(op));
}

std::vector<TensorId> emit(GraphBuilder& builder, Op op, std::string name, std::vector<TensorId> inputs,
                           AttributesPtr attributes) {
  Node probe;
  probe.op = op;
  probe.name = name;
  probe.inputs = inputs;
  probe.attributes = attributes;
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const TensorId id : inputs)
    types.push_back(id == kNoTensor ? TensorType{{0, 0, 0, 0}, DType::f32} : builder.graph().at(id).type());
  std::vector<TensorType> outputs;
  try {
    outputs = definition_of(op).infer(probe, types);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{} '{}': {}", name_of(op), name, e.what()), name_of(op), name);
  }
  return builder.node(op, std::move(name), std::move(inputs), outputs, std::move(attributes));
}

bool broadcasts_to(const Shape& operand, const Shape& full) {
  const auto fits = [](int64_t a, int64_t b) { return a == b || a == 1; };
  return fits(operand.n, full.n) && fits(operand.h, full.h) && fits(operand.w, full.w) &&
         fits(operand.c, full.c);
}

}  // namespace ren
