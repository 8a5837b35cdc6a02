// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/operands_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/pointwise/cuda_source.h"

namespace ren::cuda {
namespace {

constexpr int64_t kMaskBits = 8;

std::array<int64_t, 4> dimensions(const Shape& s) { return {s.n, s.h, s.w, s.c}; }

}  // namespace

int elements_in_16_bytes(DType type) { return std::min(8, int(16 / size_of(type))); }

int power_of_two_in(int64_t value, int limit) {
  int width = 1;
  while (width < limit && value % (2 * width) == 0) width *= 2;
  return width;
}

Operands::Operands(const Graph& graph, const Node& node, const Expression& expression)
    : expression_(expression), random_(expression.uses_random()) {
  require(node.inputs.size() >= size_t(expression.inputs) + random_, "{}: too few operands", node.name);
  for (int32_t i = 0; i < expression.inputs; ++i) {
    const Tensor& t = graph.at(node.inputs[size_t(i)]);
    require(t.dtype != DType::b1 || t.shape.c % kMaskBits == 0, "{}: a mask of {} channels", node.name,
            t.shape.c);
    operands_.push_back({t.dtype, t.shape, {}, false});
    full_.n = std::max(full_.n, t.shape.n), full_.h = std::max(full_.h, t.shape.h);
    full_.w = std::max(full_.w, t.shape.w), full_.c = std::max(full_.c, t.shape.c);
  }
  // Neighbouring dimensions in which every operand behaves alike count as one.
  const auto all = dimensions(full_);
  std::vector<bool> previous;
  for (int d = 0; d < 4; ++d) {
    if (all[size_t(d)] == 1) continue;
    std::vector<bool> repeats;
    for (const Operand& o : operands_) {
      const int64_t own = dimensions(o.shape)[size_t(d)];
      require(own == 1 || own == all[size_t(d)], "{}: operands of different sizes", node.name);
      repeats.push_back(own == 1);
    }
    if (!extents_.empty() && repeats == previous)
      extents_.back() *= all[size_t(d)];
    else {
      extents_.push_back(all[size_t(d)]);
      for (size_t i = 0; i < operands_.size(); ++i) operands_[i].strides.push_back(repeats[i] ? 0 : 1);
    }
    previous = repeats;
  }
  for (Operand& o : operands_) {
    int64_t stride = 1;
    o.full = std::none_of(o.strides.begin(), o.strides.end(), [](int64_t s) { return s == 0; });
    o.fixed = !o.strides.empty() &&
              std::all_of(o.strides.begin(), o.strides.end() - 1, [](int64_t s) { return s == 0; }) &&
              (o.strides.size() > 1 || o.strides.back() == 0);
    for (size_t d = extents_.size(); d-- > 0;) {
      if (o.strides[d] == 0) continue;
      o.strides[d] = stride;
      stride *= extents_[d];
    }
    if (!o.strides.empty() && o.strides.back() != 0)
      natural_width_ = std::max(natural_width_, elements_in_16_bytes(o.type));
  }
}

int Operands::widest(int limit) const {
  return extents_.empty() ? 1 : power_of_two_in(extents_.back(), limit);
}

size_t Operands::fixed() const {
  return size_t(std::count_if(operands_.begin(), operands_.end(), [](const Operand& o) { return o.fixed; }));
}

std::optional<size_t> Operands::only_varying() const {
  if (fixed() + 1 != count()) return {};
  const auto varies = [](const Operand& o) { return !o.fixed; };
  return size_t(std::find_if(operands_.begin(), operands_.end(), varies) - operands_.begin());
}

std::string Operands::parameters() const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i)
    text += fmt::format("const {}* x{}, ", name_of(operands_[i].type), i);
  if (random_) text += "const int* random_state, ";
  return text;
}

std::string Operands::offset(const Operand& operand, std::string_view index) const {
  if (operand.full) return std::string(index);
  std::string text;
  int64_t inner = 1;
  for (size_t d = extents_.size(); d-- > 0;) {
    if (const int64_t stride = operand.strides[d]; stride != 0) {
      std::string coordinate = inner == 1 ? std::string(index) : fmt::format("({}) / {}u", index, inner);
      if (d != 0) coordinate = fmt::format("({}) % {}u", coordinate, extents_[d]);
      text += fmt::format("{}({}) * {}u", text.empty() ? "" : " + ", coordinate, stride);
    }
    inner *= extents_[d];
  }
  return text.empty() ? "0" : text;
}

std::string Operands::loads(int width, Which which, std::string_view index) const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& o = operands_[i];
    if (which != Which::all && o.fixed != (which == Which::fixed)) continue;
    const std::string from = fmt::format("x{} {} ({})", i, o.type == DType::b1 ? "," : "+", offset(o, index));
    const bool vector = !o.strides.empty() && o.strides.back() != 0;
    if (vector)
      text += fmt::format("const Vec<{0}, {1}> a{2} = Vec<{0}, {1}>::load({3});\n", name_of(o.type), width, i,
                          from);
    else
      text += fmt::format("const float a{} = load_one({});\n", i, from);
  }
  return text;
}

std::string Operands::evaluate(std::vector<std::string>& outputs) const {
  std::string text;
  std::vector<std::string> names;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& o = operands_[i];
    const bool vector = !o.strides.empty() && o.strides.back() != 0;
    text += fmt::format("const float b{0} = a{0}{1};\n", i, vector ? ".get(v)" : "");
    names.push_back(fmt::format("b{}", i));
  }
  const int64_t sample = full_.h * full_.w * full_.c;
  const std::string random =
      fmt::format("ren_uniform(random_state, unsigned((e + v) / {0}u), (e + v) % {0}u, ", sample);
  const CudaExpression expression = cuda_expression(expression_, names, random);
  outputs = expression.outputs;
  return text + expression.statements;
}

}  // namespace ren::cuda
