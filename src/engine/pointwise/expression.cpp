// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/status.h"

namespace ren {
namespace {

struct PrimInfo {
  const char* name;
  int arity;
};

constexpr PrimInfo info_of(Prim prim) {
  // clang-format off
  switch (prim) {
    case Prim::input: return {"input", 0};
    case Prim::constant: return {"constant", 0};
    case Prim::uniform: return {"uniform", 0};
    case Prim::add: return {"add", 2};
    case Prim::sub: return {"sub", 2};
    case Prim::mul: return {"mul", 2};
    case Prim::div: return {"div", 2};
    case Prim::max: return {"max", 2};
    case Prim::min: return {"min", 2};
    case Prim::neg: return {"neg", 1};
    case Prim::abs: return {"abs", 1};
    case Prim::exp: return {"exp", 1};
    case Prim::log: return {"log", 1};
    case Prim::sqrt: return {"sqrt", 1};
    case Prim::rsqrt: return {"rsqrt", 1};
    case Prim::reciprocal: return {"reciprocal", 1};
    case Prim::tanh: return {"tanh", 1};
    case Prim::erf: return {"erf", 1};
    case Prim::sigmoid: return {"sigmoid", 1};
    case Prim::softplus: return {"softplus", 1};
    case Prim::less: return {"less", 2};
    case Prim::less_equal: return {"less_equal", 2};
    case Prim::equal: return {"equal", 2};
    case Prim::select: return {"select", 3};
  }
  // clang-format on
  return {"?", 0};
}

double sigmoid(double x) {
  if (x >= 0) return 1.0 / (1.0 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1.0 + e);
}

// NaN wins over any number, as in torch.maximum; std::max would let the order decide.
double max_of(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double min_of(double a, double b) { return a < b || std::isnan(a) ? a : b; }

std::string leaf_text(const ExprNode& node) {
  if (node.prim == Prim::input) return fmt::format("x{}", node.index);
  if (node.prim == Prim::constant) return fmt::format("{}", node.value);
  return fmt::format("{}({})", node.value != 0 ? "uniform_sample" : "uniform", node.index);
}

}  // namespace

const char* name_of(Prim prim) { return info_of(prim).name; }
int arity(Prim prim) { return info_of(prim).arity; }

double apply_prim(Prim prim, double a, double b, double c) {
  // clang-format off
  switch (prim) {
    case Prim::input:
    case Prim::constant:
    case Prim::uniform: break;
    case Prim::add: return a + b;
    case Prim::sub: return a - b;
    case Prim::mul: return a * b;
    case Prim::div: return a / b;
    case Prim::max: return max_of(a, b);
    case Prim::min: return min_of(a, b);
    case Prim::neg: return -a;
    case Prim::abs: return std::fabs(a);
    case Prim::exp: return std::exp(a);
    case Prim::log: return std::log(a);
    case Prim::sqrt: return std::sqrt(a);
    case Prim::rsqrt: return 1.0 / std::sqrt(a);
    case Prim::reciprocal: return 1.0 / a;
    case Prim::tanh: return std::tanh(a);
    case Prim::erf: return std::erf(a);
    case Prim::sigmoid: return sigmoid(a);
    case Prim::softplus: return max_of(a, 0.0) + std::log1p(std::exp(-std::fabs(a)));
    case Prim::less: return a < b;
    case Prim::less_equal: return a <= b;
    case Prim::equal: return a == b;
    case Prim::select: return a != 0 ? b : c;
  }
  // clang-format on
  fail(StatusCode::internal, "{} is no operation", name_of(prim));
}

bool Expression::uses_random() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const ExprNode& n) { return n.prim == Prim::uniform; });
}

std::string Expression::text() const {
  std::vector<int> uses(nodes.size(), 0);
  for (const ExprNode& node : nodes)
    for (int32_t operand : {node.a, node.b, node.c})
      if (operand >= 0) ++uses[size_t(operand)];

  std::vector<std::string> names(nodes.size());
  std::string result;
  int temporaries = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ExprNode& node = nodes[i];
    if (arity(node.prim) == 0) {
      names[i] = leaf_text(node);
      continue;
    }
    std::string call = fmt::format("{}({}", name_of(node.prim), names[size_t(node.a)]);
    if (node.b >= 0) call += ", " + names[size_t(node.b)];
    if (node.c >= 0) call += ", " + names[size_t(node.c)];
    call += ")";
    if (uses[i] > 1) {  // written once, however often it is read: the text stays linear in the nodes
      names[i] = fmt::format("t{}", temporaries++);
      result += fmt::format("{} = {}; ", names[i], call);
    } else {
      names[i] = std::move(call);
    }
  }
  for (size_t k = 0; k < outputs.size(); ++k)
    result += fmt::format("{}y{} = {}", k ? "; " : "", k, names[size_t(outputs[k])]);
  return result;
}

// THE definition of the engine's random operand. Every backend computes these very bits:
//   key     = the two key words of the random state
//   counter = { per_sample ? 0 : element / 4,
//               low word of the global sample index,
//               (2 * stream + per_sample) ^ (high word of the sample index << 16),
//               step }
//   result  = Philox::to_unit(word), word = element % 4 of Philox4x32-10, word 0 when per_sample.
// So four neighbouring elements of a sample share one block, and nothing depends on the batch,
// the rank or the thread that a sample falls to.
Philox::Counter random_counter(const RandomPoint& point, uint32_t stream, bool per_sample) {
  return {per_sample ? 0u : uint32_t(point.element / 4), uint32_t(point.sample),
          (2 * stream + (per_sample ? 1u : 0u)) ^ (uint32_t(point.sample >> 32) << 16), point.step};
}

float uniform_at(const RandomPoint& point, uint32_t stream, bool per_sample) {
  const Philox::Counter block = Philox::generate(random_counter(point, stream, per_sample), point.key);
  return Philox::to_unit(block[per_sample ? 0 : point.element % 4]);
}

void evaluate(const Expression& expression, std::span<const double> inputs, const RandomPoint& point,
              std::span<double> outputs) {
  require(outputs.size() == expression.outputs.size() && int32_t(inputs.size()) >= expression.inputs,
          "evaluate: {} inputs and {} outputs for {}", inputs.size(), outputs.size(), expression.text());
  thread_local std::vector<double> values;
  values.resize(expression.nodes.size());
  const auto value = [](int32_t id) { return id < 0 ? 0.0 : values[size_t(id)]; };
  for (size_t i = 0; i < expression.nodes.size(); ++i) {
    const ExprNode& n = expression.nodes[i];
    if (n.prim == Prim::input)
      values[i] = inputs[size_t(n.index)];
    else if (n.prim == Prim::constant)
      values[i] = n.value;
    else if (n.prim == Prim::uniform)
      values[i] = double(uniform_at(point, uint32_t(n.index), n.value != 0));
    else
      values[i] = apply_prim(n.prim, value(n.a), value(n.b), value(n.c));
  }
  for (size_t k = 0; k < outputs.size(); ++k) outputs[k] = value(expression.outputs[k]);
}

Expression compact_inputs(const Expression& expression, std::vector<int32_t>& kept) {
  std::vector<int32_t> number(size_t(expression.inputs), -1);
  for (const ExprNode& n : expression.nodes)
    if (n.prim == Prim::input) number[size_t(n.index)] = 0;
  kept.clear();
  for (size_t i = 0; i < number.size(); ++i) {
    if (number[i] < 0) continue;
    number[i] = int32_t(kept.size());
    kept.push_back(int32_t(i));
  }
  Expression result = expression;
  result.inputs = int32_t(kept.size());
  for (ExprNode& n : result.nodes)
    if (n.prim == Prim::input) n.index = number[size_t(n.index)];
  return result;
}

Expression select_outputs(const Expression& expression, std::span<const int> wanted) {
  ExpressionBuilder builder;
  std::vector<Value> arguments;
  for (int i = 0; i < expression.inputs; ++i) arguments.push_back(builder.input(i));
  const std::vector<Value> all = builder.inline_expression(expression, arguments);
  std::vector<Value> outputs;
  for (int k : wanted) outputs.push_back(all[size_t(k)]);
  return builder.finish(std::move(outputs), expression.inputs);
}

bool is_constant(const Expression& expression, size_t output, double value) {
  const ExprNode& node = expression.nodes[size_t(expression.outputs[output])];
  return node.prim == Prim::constant && node.value == value;
}

}  // namespace ren
