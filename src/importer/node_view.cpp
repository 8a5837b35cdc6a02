// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "importer/import_context.h"

namespace ren::importer {

namespace {

std::string readable_name(const onnx::NodeProto& proto, int index) {
  if (!proto.name().empty()) return proto.name();
  if (proto.output_size() > 0 && !proto.output(0).empty()) return proto.output(0);
  return fmt::format("node {}", index);
}

const char* text_of(Kind kind) {
  switch (kind) {
    case Kind::absent:
      return "absent";
    case Kind::unknown:
      return "unknown";
    case Kind::host:
      return "a constant";
    case Kind::weight:
      return "a constant or weight";
    case Kind::tensor:
      return "computed from the model's input";
    case Kind::noise:
      return "random";
    case Kind::sequence:
      return "a sequence";
  }
  return "";
}

}  // namespace

NodeView::NodeView(ImportContext& c, const onnx::NodeProto& p, int i)
    : context(c), proto(p), index(i), name(readable_name(p, i)), opset(c.opset) {}

bool NodeView::wants(int output) const {
  if (output >= outputs() || proto.output(output).empty()) return false;
  const std::string& value = proto.output(output);
  const auto readers = context.consumers.find(value);
  return context.graph_outputs.count(value) ||
         (readers != context.consumers.end() && !readers->second.empty());
}

const OnnxValue& NodeView::in(int input) const {
  static const OnnxValue absent;
  if (!has(input)) return absent;
  const auto untied = context.untied.find({index, input});
  return untied != context.untied.end() ? untied->second : context.value(proto.input(input));
}

const OnnxValue& NodeView::required(int input) const {
  const OnnxValue& value = in(input);
  if (value.is(Kind::absent)) contradict("input {} is missing", input);
  if (value.is(Kind::sequence)) refuse("", "input {} is a sequence", input);
  return value;
}

const OnnxValue& NodeView::tensor_in(int input) const {
  const OnnxValue& value = required(input);
  if (!value.is(Kind::tensor))
    refuse("", "input {} ('{}') is {}, not {}", input, proto.input(input), text_of(value.kind),
           text_of(Kind::tensor));
  return value;
}

HostValue NodeView::host_in(int input) const {
  const OnnxValue& value = required(input);
  if (!value.known())
    refuse("", "input {} ('{}') must be a constant, but is {}", input, proto.input(input),
           text_of(value.kind));
  context.note_constant(value, fmt::format("read while importing {}", proto.op_type()));
  return context.host(value);
}

std::vector<int64_t> NodeView::ints_in(int input) const {
  const HostValue value = host_in(input);
  if (value.depends_on_batch())
    refuse("", "input {} ('{}') depends on the batch size", input, proto.input(input));
  if (!value.is_real()) return value.ints;
  std::vector<int64_t> result;
  for (const double v : value.reals) result.push_back(int64_t(std::llround(v)));
  return result;
}

double NodeView::scalar_in(int input) const {
  const HostValue value = host_in(input);
  if (value.elements() != 1)
    contradict("input {} has shape {} and must be a scalar", input, to_text(value.dims));
  if (value.depends_on_batch())
    refuse("", "input {} ('{}') depends on the batch size", input, proto.input(input));
  return value.at(0);
}

const onnx::AttributeProto* NodeView::attribute(const char* wanted) const {
  for (const auto& a : proto.attribute())
    if (a.name() == wanted) return &a;
  return nullptr;
}

namespace {

void check_type(const onnx::AttributeProto& a, int type) {
  // Type 0 is what writers before IR version 3 left out.
  if (a.type() != type && a.type() != 0) contradict("attribute '{}' has the wrong type", a.name());
}

}  // namespace

int64_t NodeView::integer(const char* wanted, int64_t fallback) const {
  const auto* a = attribute(wanted);
  if (!a) return fallback;
  check_type(*a, onnx::AttributeProto::INT);
  return a->i();
}

double NodeView::real(const char* wanted, double fallback) const {
  const auto* a = attribute(wanted);
  if (!a) return fallback;
  check_type(*a, onnx::AttributeProto::FLOAT);
  return double(a->f());
}

std::string NodeView::text(const char* wanted, const std::string& fallback) const {
  const auto* a = attribute(wanted);
  if (!a) return fallback;
  check_type(*a, onnx::AttributeProto::STRING);
  return a->s();
}

std::vector<int64_t> NodeView::integers(const char* wanted, std::vector<int64_t> fallback) const {
  const auto* a = attribute(wanted);
  if (!a) return fallback;
  check_type(*a, onnx::AttributeProto::INTS);
  return {a->ints().begin(), a->ints().end()};
}

void NodeView::give(int output, OnnxValue value) const {
  if (output < outputs() && !proto.output(output).empty())
    context.values[proto.output(output)] = std::move(value);
}

int NodeView::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) contradict("axis {} of a tensor of rank {}", axis, rank);
  return int(axis < 0 ? axis + rank : axis);
}

}  // namespace ren::importer
