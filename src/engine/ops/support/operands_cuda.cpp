// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/operands_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/ops/support/extents_cuda.h"
#include "engine/pointwise/cuda_source.h"

namespace ren::cuda {
namespace {

constexpr int64_t kMaskBits = 8;

std::array<int64_t, 4> dimensions(const Shape& s) { return {s.n, s.h, s.w, s.c}; }

int64_t step_of(const OperandView& view, size_t dimension) {
  return dimension == 1 ? view.h : dimension == 2 ? view.w : 1;
}

}  // namespace

int elements_in_16_bytes(DType type) { return std::min(8, int(16 / size_of(type))); }

int power_of_two_in(int64_t value, int limit) {
  int width = 1;
  while (width < limit && value % (2 * width) == 0) width *= 2;
  return width;
}

Operands::Operands(const Graph& graph, const Node& node, const Expression& expression)
    : expression_(expression), random_(expression.uses_random()) {
  require(node.inputs.size() >= size_t(expression_.inputs) + random_, "{}: too few operands", node.name);
  for (int32_t i = 0; i < expression_.inputs; ++i) {
    const Tensor& t = graph.at(node.inputs[size_t(i)]);
    require(t.dtype != DType::b1 || t.shape.c % kMaskBits == 0, "{}: a mask of {} channels", node.name,
            t.shape.c);
    operands_.push_back(
        {t.dtype, t.shape, node.as<ExpressionAttributes>().view(size_t(i)), t.shape.c, {}, {}});
    Operand& o = operands_.back();
    if (o.view.is_window()) o.shape.c = o.view.count;
    full_.n = std::max(full_.n, o.shape.n), full_.h = std::max(full_.h, o.shape.h);
    full_.w = std::max(full_.w, o.shape.w), full_.c = std::max(full_.c, o.shape.c);
  }
  merge_dimensions(node.name);
  for (Operand& o : operands_) {
    o.full =
        !o.view.any() && std::none_of(o.strides.begin(), o.strides.end(), [](int64_t s) { return s == 0; });
    o.fixed = !o.view.any() && !o.strides.empty() &&
              std::all_of(o.strides.begin(), o.strides.end() - 1, [](int64_t s) { return s == 0; }) &&
              (o.strides.size() > 1 || o.strides.back() == 0);
    int64_t stride = full_.c == 1 ? o.channels : 1;
    for (size_t d = extents_.size(); d-- > 0;) {
      if (o.strides[d] != 0) {
        o.strides[d] = stride;
        stride *= divide_up(extents_[d], o.steps[d]);
      }
      // The channels of a window are a dimension of their own.
      if (o.view.is_window() && full_.c != 1 && d + 1 == extents_.size()) stride = o.channels;
    }
    if (!o.strides.empty() && o.strides.back() != 0)
      natural_width_ = std::max(natural_width_, elements_in_16_bytes(o.type));
  }
}

// Neighbouring dimensions in which every operand behaves alike count as one.
void Operands::merge_dimensions(const std::string& name) {
  const auto all = dimensions(full_);
  const bool windows =
      std::any_of(operands_.begin(), operands_.end(), [](const Operand& o) { return o.view.is_window(); });
  std::vector<int64_t> previous;
  for (size_t d = 0; d < all.size(); ++d) {
    if (all[d] == 1) continue;
    std::vector<int64_t> steps;  // 0: the operand repeats
    for (const Operand& o : operands_) {
      const int64_t own = dimensions(o.shape)[d], step = step_of(o.view, d);
      require((own == 1 && step == 1) || own == divide_up(all[d], step), "{}: operands of different sizes",
              name);
      steps.push_back(own == 1 && step == 1 ? 0 : step);
    }
    const bool plain = std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step <= 1; });
    const bool apart = windows && d + 1 == all.size();
    if (!extents_.empty() && steps == previous && plain && !apart) {
      extents_.back() *= all[d];
    } else {
      extents_.push_back(all[d]);
      for (size_t i = 0; i < operands_.size(); ++i) {
        operands_[i].strides.push_back(steps[i] == 0 ? 0 : 1);
        operands_[i].steps.push_back(std::max<int64_t>(steps[i], 1));
      }
    }
    previous = steps;
  }
}

int Operands::widest(int limit) const {
  // Neighbours of an operand that is spread in the innermost dimension, or a window of one channel, are none
  // in memory.
  const auto is_split = [](const Operand& o) { return o.steps.back() != 1 || o.strides.back() > 1; };
  if (extents_.empty() || std::any_of(operands_.begin(), operands_.end(), is_split)) return 1;
  int width = power_of_two_in(extents_.back(), limit);
  for (const Operand& o : operands_)
    if (o.view.is_window()) width = power_of_two_in(o.view.first, power_of_two_in(o.channels, width));
  return width;
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

// Of the element that `index` names, in a merged dimension within which `inner` elements are.
std::string Operands::coordinate(size_t dimension, int64_t inner, std::string_view index) const {
  std::string text = inner == 1 ? std::string(index) : fmt::format("({}) / {}u", index, inner);
  if (dimension != 0) text = fmt::format("({}) % {}u", text, extents_[dimension]);
  return text;
}

std::string Operands::offset(const Operand& operand, std::string_view index) const {
  if (operand.full) return std::string(index);
  std::string text;
  int64_t inner = 1;
  for (size_t d = extents_.size(); d-- > 0;) {
    if (const int64_t stride = operand.strides[d]; stride != 0) {
      std::string place = coordinate(d, inner, index);
      if (operand.steps[d] != 1) place = fmt::format("({}) / {}u", place, operand.steps[d]);
      text += fmt::format("{}({}) * {}u", text.empty() ? "" : " + ", place, stride);
    }
    inner *= extents_[d];
  }
  if (operand.view.first != 0) text += fmt::format("{}{}u", text.empty() ? "" : " + ", operand.view.first);
  return text.empty() ? "0" : text;
}

// Whether a spread operand has that element; elsewhere it is zero. Rows come first: threads of a warp agree
// there.
std::string Operands::guard(const Operand& operand, std::string_view index) const {
  std::string text;
  int64_t inner = 1;
  for (size_t d = extents_.size(); d-- > 0; inner *= extents_[d])
    if (operand.steps[d] != 1)
      text = fmt::format("({}) % {}u == 0{}{}", coordinate(d, inner, index), operand.steps[d],
                         text.empty() ? "" : " && ", text);
  return text.empty() ? "true" : text;
}

std::string Operands::loads(int width, Which which, std::string_view index) const {
  std::string text, guarded;  // which are branches: other loads are on their way by then
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& o = operands_[i];
    if (which != Which::all && o.fixed != (which == Which::fixed)) continue;
    const std::string from = fmt::format("x{} {} ({})", i, o.type == DType::b1 ? "," : "+", offset(o, index));
    const bool vector = !o.strides.empty() && o.strides.back() != 0;
    const std::string type = fmt::format("Vec<{}, {}>", name_of(o.type), width);
    if (o.view.is_spread())
      guarded +=
          fmt::format("{0} a{1}{{}};\nif ({2}) a{1} = {0}::load({3});\n", type, i, guard(o, index), from);
    else if (vector)
      text += fmt::format("const {0} a{1} = {0}::load({2});\n", type, i, from);
    else
      text += fmt::format("const float a{} = load_one({});\n", i, from);
  }
  return text + guarded;
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
