// SPDX-License-Identifier: Apache-2.0
// No contraction here: every primitive rounds, in whatever company it is computed.
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,fp-contract=off")
#include "engine/pointwise/block_program.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/base/vector_clones.h"
#include "engine/pointwise/vector_math.h"

namespace ren {

// clang-format off
// The loops: what one element of the target becomes. a, b and c are buffers, s and t immediates.
// max and min propagate NaN; with an immediate the operand's NaN wins by failing the comparison.
#define REN_LOOPS(X)                                             \
  X(fill, s)                                                     \
  X(add, a[i] + b[i])                                            \
  X(add_s, a[i] + s)                                             \
  X(sub, a[i] - b[i])                                            \
  X(sub_from, s - a[i])                                          \
  X(mul, a[i] * b[i])                                            \
  X(mul_s, a[i] * s)                                             \
  X(div, a[i] / b[i])                                            \
  X(div_s, a[i] / s)                                             \
  X(div_into, s / a[i])                                          \
  X(max, pick((a[i] > b[i]) | (a[i] != a[i]), a[i], b[i]))             \
  X(max_s, s > a[i] ? s : a[i])                                  \
  X(min, pick((a[i] < b[i]) | (a[i] != a[i]), a[i], b[i]))             \
  X(min_s, s < a[i] ? s : a[i])                                  \
  X(neg, -a[i])                                                  \
  X(abs, __builtin_fabsf(a[i]))                                        \
  X(sqrt, __builtin_sqrtf(a[i]))                                       \
  X(rsqrt, 1.0f / __builtin_sqrtf(a[i]))                               \
  X(less, a[i] < b[i] ? 1.0f : 0.0f)                             \
  X(less_s, a[i] < s ? 1.0f : 0.0f)                              \
  X(less_from, s < a[i] ? 1.0f : 0.0f)                           \
  X(less_equal, a[i] <= b[i] ? 1.0f : 0.0f)                      \
  X(less_equal_s, a[i] <= s ? 1.0f : 0.0f)                       \
  X(less_equal_from, s <= a[i] ? 1.0f : 0.0f)                    \
  X(equal, a[i] == b[i] ? 1.0f : 0.0f)                           \
  X(equal_s, a[i] == s ? 1.0f : 0.0f)                            \
  X(select, pick(a[i] != 0.0f, b[i], c[i]))                         \
  X(select_vs, pick(a[i] != 0.0f, b[i], s))                        \
  X(select_sv, pick(a[i] != 0.0f, s, b[i]))                        \
  X(select_ss, a[i] != 0.0f ? s : t)                             \
  /* Pairs that normalisation, residual sums and their gradients are made of. */ \
  X(mul_add, a[i] * b[i] + c[i])                                 \
  X(mul_sub, a[i] * b[i] - c[i])                                 \
  X(sub_mul_from, c[i] - a[i] * b[i])                            \
  X(mul_mul, a[i] * b[i] * c[i])                                 \
  X(add_add, a[i] + b[i] + c[i])                                 \
  X(add_mul, (a[i] + b[i]) * c[i])                               \
  X(sub_add, a[i] - b[i] + c[i])                                 \
  X(sub_sub, a[i] - b[i] - c[i])                                 \
  X(sub_mul, (a[i] - b[i]) * c[i])                               \
  X(add_max, s > a[i] + b[i] ? s : a[i] + b[i])                  \
  X(mul_add_max, s > a[i] * b[i] + c[i] ? s : a[i] * b[i] + c[i]) \
  X(select_above, pick(s < a[i], b[i], t))
// clang-format on

// clang-format off
enum class BlockProgram::Loop : uint8_t {
#define REN_LOOP(name, expression) name,
  REN_LOOPS(REN_LOOP)
#undef REN_LOOP
  exp, log, tanh, erf, sigmoid, softplus   // by vector_math
};
// clang-format on

using Loop = BlockProgram::Loop;
using Step = BlockProgram::Step;

namespace {

// Reads both sides whatever the condition: a conditional load would keep the loop scalar.
[[gnu::always_inline]] inline float pick(bool condition, float a, float b) { return condition ? a : b; }

REN_CLONES void run_loop(const Step& step, float* const* buffers, int count) {
  float* y = buffers[step.target];
  const auto buffer = [&](int16_t index) -> const float* { return index < 0 ? nullptr : buffers[index]; };
  const float *a = buffer(step.a), *b = buffer(step.b), *c = buffer(step.c);
  const float s = step.immediate[0], t = step.immediate[1];
  (void)t;
  switch (step.loop) {
    // A target may be one of the operands, never overlap one otherwise: that is no dependence.
#define REN_LOOP(name, expression)                                          \
  case Loop::name:                                                          \
    _Pragma("GCC ivdep") for (int i = 0; i < count; ++i) y[i] = expression; \
    break;
    REN_LOOPS(REN_LOOP)
#undef REN_LOOP
    default:
      break;
  }
}

void fetch(const std::byte* data, int64_t begin, int64_t end) {
  for (int64_t i = begin / 64 * 64; i < end; i += 64) __builtin_prefetch(data + i, 0, 2);
}

Prim prim_of(Loop loop) {
  // clang-format off
  switch (loop) {
    case Loop::exp: return Prim::exp;
    case Loop::log: return Prim::log;
    case Loop::tanh: return Prim::tanh;
    case Loop::erf: return Prim::erf;
    case Loop::sigmoid: return Prim::sigmoid;
    default: return Prim::softplus;
  }
  // clang-format on
}

}  // namespace

// Chooses loops and buffers for the nodes of one expression.
class BlockCompiler {
 public:
  BlockCompiler(const Expression& expression, BlockProgram& program) : e_(expression), p_(program) {}

  void run() {
    p_.inputs_ = e_.inputs;
    p_.outputs_ = int(e_.outputs.size());
    count_uses();
    choose_loops();
    assign_buffers();
    finish_outputs();
  }

 private:
  // A step whose operands are still nodes.
  struct Draft {
    Loop loop;
    int32_t node;
    int32_t operands[3] = {-1, -1, -1};
    float s = 0, t = 0;
  };

  const ExprNode& at(int32_t id) const { return e_.nodes[size_t(id)]; }
  bool is_constant(int32_t id) const { return at(id).prim == Prim::constant; }
  float value(int32_t id) const { return float(at(id).value); }
  bool is_leaf(int32_t id) const { return arity(at(id).prim) == 0; }

  void count_uses() {
    uses_.assign(e_.nodes.size(), 0);
    for (const ExprNode& n : e_.nodes)
      for (int32_t operand : {n.a, n.b, n.c})
        if (operand >= 0) ++uses_[size_t(operand)];
    for (int32_t id : e_.outputs) uses_[size_t(id)] += 2;  // never absorbed
  }

  void choose_loops() {
    std::vector<bool> absorbed(e_.nodes.size(), false);
    for (int32_t id = int32_t(e_.nodes.size()); id-- > 0;) {
      if (is_leaf(id) || absorbed[size_t(id)]) continue;
      inner_.clear();
      Draft draft;
      if (!pair(id, draft)) draft = single(id);
      for (int32_t inner : inner_) absorbed[size_t(inner)] = true;
      drafts_.push_back(draft);
    }
    std::reverse(drafts_.begin(), drafts_.end());
  }

  // `id` can be computed inside its only reader when it's this primitive of two buffers.
  bool absorbs(int32_t id, Prim prim) {
    const ExprNode& n = at(id);
    if (n.prim != prim || uses_[size_t(id)] != 1 || is_constant(n.a) || is_constant(n.b)) return false;
    inner_.push_back(id);
    return true;
  }

  bool pair(int32_t id, Draft& draft) {
    const ExprNode& n = at(id);
    const auto from = [&](Loop loop, int32_t inner, int32_t other, float s = 0) {
      draft = {loop, id, {at(inner).a, at(inner).b, other}, s, 0};
      return true;
    };
    if (n.prim == Prim::max && is_constant(n.b) && absorbs(n.a, Prim::add)) {
      const ExprNode& sum = at(n.a);
      if (absorbs(sum.a, Prim::mul)) return from(Loop::mul_add_max, sum.a, sum.b, value(n.b));
      if (absorbs(sum.b, Prim::mul)) return from(Loop::mul_add_max, sum.b, sum.a, value(n.b));
      return from(Loop::add_max, n.a, -1, value(n.b));
    }
    if (n.prim == Prim::select && !is_constant(n.b) && is_constant(n.c) && at(n.a).prim == Prim::less &&
        is_constant(at(n.a).a) && uses_[size_t(n.a)] == 1) {
      inner_.push_back(n.a);
      draft = {Loop::select_above, id, {at(n.a).b, n.b, -1}, value(at(n.a).a), value(n.c)};
      return true;
    }
    if (n.b < 0 || n.c >= 0 || is_constant(n.a) || is_constant(n.b)) return false;
    switch (n.prim) {
      case Prim::add:
        if (absorbs(n.a, Prim::mul)) return from(Loop::mul_add, n.a, n.b);
        if (absorbs(n.b, Prim::mul)) return from(Loop::mul_add, n.b, n.a);
        if (absorbs(n.a, Prim::add)) return from(Loop::add_add, n.a, n.b);
        if (absorbs(n.b, Prim::add)) return from(Loop::add_add, n.b, n.a);
        if (absorbs(n.a, Prim::sub)) return from(Loop::sub_add, n.a, n.b);
        return absorbs(n.b, Prim::sub) && from(Loop::sub_add, n.b, n.a);
      case Prim::sub:
        if (absorbs(n.a, Prim::mul)) return from(Loop::mul_sub, n.a, n.b);
        if (absorbs(n.b, Prim::mul)) return from(Loop::sub_mul_from, n.b, n.a);
        return absorbs(n.a, Prim::sub) && from(Loop::sub_sub, n.a, n.b);
      case Prim::mul:
        if (absorbs(n.a, Prim::sub)) return from(Loop::sub_mul, n.a, n.b);
        if (absorbs(n.b, Prim::sub)) return from(Loop::sub_mul, n.b, n.a);
        if (absorbs(n.a, Prim::add)) return from(Loop::add_mul, n.a, n.b);
        if (absorbs(n.b, Prim::add)) return from(Loop::add_mul, n.b, n.a);
        if (absorbs(n.a, Prim::mul)) return from(Loop::mul_mul, n.a, n.b);
        return absorbs(n.b, Prim::mul) && from(Loop::mul_mul, n.b, n.a);
      default:
        return false;
    }
  }

  // `vv` for two buffers, `vs` when the second operand is a constant, `sv` when the first is.
  Draft binary(int32_t id, Loop vv, Loop vs, Loop sv) const {
    const ExprNode& n = at(id);
    if (is_constant(n.a)) return {sv, id, {n.b, -1, -1}, value(n.a), 0};
    if (is_constant(n.b)) return {vs, id, {n.a, -1, -1}, value(n.b), 0};
    return {vv, id, {n.a, n.b, -1}, 0, 0};
  }

  Draft select(int32_t id) const {
    const ExprNode& n = at(id);
    if (is_constant(n.b) && is_constant(n.c))
      return {Loop::select_ss, id, {n.a, -1, -1}, value(n.b), value(n.c)};
    if (is_constant(n.b)) return {Loop::select_sv, id, {n.a, n.c, -1}, value(n.b), 0};
    if (is_constant(n.c)) return {Loop::select_vs, id, {n.a, n.b, -1}, value(n.c), 0};
    return {Loop::select, id, {n.a, n.b, n.c}, 0, 0};
  }

  Draft single(int32_t id) const {
    const ExprNode& n = at(id);
    const auto unary = [&](Loop loop, float s = 0) { return Draft{loop, id, {n.a, -1, -1}, s, 0}; };
    // clang-format off
    switch (n.prim) {
      case Prim::add: return binary(id, Loop::add, Loop::add_s, Loop::add_s);
      case Prim::sub:
        if (is_constant(n.b)) return unary(Loop::add_s, -value(n.b));
        return binary(id, Loop::sub, Loop::sub, Loop::sub_from);
      case Prim::mul: return binary(id, Loop::mul, Loop::mul_s, Loop::mul_s);
      case Prim::div: return binary(id, Loop::div, Loop::div_s, Loop::div_into);
      case Prim::max: return binary(id, Loop::max, Loop::max_s, Loop::max_s);
      case Prim::min: return binary(id, Loop::min, Loop::min_s, Loop::min_s);
      case Prim::less: return binary(id, Loop::less, Loop::less_s, Loop::less_from);
      case Prim::less_equal: return binary(id, Loop::less_equal, Loop::less_equal_s, Loop::less_equal_from);
      case Prim::equal: return binary(id, Loop::equal, Loop::equal_s, Loop::equal_s);
      case Prim::neg: return unary(Loop::neg);
      case Prim::abs: return unary(Loop::abs);
      case Prim::sqrt: return unary(Loop::sqrt);
      case Prim::rsqrt: return unary(Loop::rsqrt);
      case Prim::reciprocal: return unary(Loop::div_into, 1.0f);
      case Prim::exp: return unary(Loop::exp);
      case Prim::log: return unary(Loop::log);
      case Prim::tanh: return unary(Loop::tanh);
      case Prim::erf: return unary(Loop::erf);
      case Prim::sigmoid: return unary(Loop::sigmoid);
      case Prim::softplus: return unary(Loop::softplus);
      case Prim::select: return select(id);
      case Prim::input:
      case Prim::constant:
      case Prim::uniform: break;
    }
    // clang-format on
    fail(StatusCode::internal, "{} is no operation", name_of(n.prim));
  }

  int first_output() const { return p_.inputs_ + int(p_.randoms_.size()); }

  void assign_buffers() {
    buffer_.assign(e_.nodes.size(), -1);
    for (size_t id = 0; id < e_.nodes.size(); ++id) {
      const ExprNode& n = e_.nodes[id];
      if (n.prim == Prim::input) buffer_[id] = int16_t(n.index);
      if (n.prim == Prim::uniform) {
        buffer_[id] = int16_t(p_.inputs_ + int(p_.randoms_.size()));
        p_.randoms_.push_back({uint32_t(n.index), n.value != 0});
      }
    }
    for (size_t k = e_.outputs.size(); k-- > 0;)
      if (!is_leaf(e_.outputs[k])) buffer_[size_t(e_.outputs[k])] = int16_t(first_output() + int(k));

    std::vector<size_t> last_use(e_.nodes.size(), 0);
    for (size_t i = 0; i < drafts_.size(); ++i)
      for (int32_t operand : drafts_[i].operands)
        if (operand >= 0) last_use[size_t(operand)] = i;

    const int16_t first_temporary = int16_t(first_output() + p_.outputs_);
    std::vector<int16_t> free;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      const Draft& d = drafts_[i];
      for (int32_t operand : d.operands)
        if (operand >= 0 && last_use[size_t(operand)] == i && buffer_[size_t(operand)] >= first_temporary &&
            std::find(free.begin(), free.end(), buffer_[size_t(operand)]) == free.end())
          free.push_back(buffer_[size_t(operand)]);
      int16_t& target = buffer_[size_t(d.node)];
      if (target < 0) {
        if (free.empty()) free.push_back(int16_t(first_temporary + p_.temporaries_++));
        target = free.back();
        free.pop_back();
      }
      const auto at_buffer = [&](int32_t id) { return id < 0 ? int16_t(-1) : buffer_[size_t(id)]; };
      const int16_t x = at_buffer(d.operands[0]), y = at_buffer(d.operands[1]), z = at_buffer(d.operands[2]);
      p_.steps_.push_back({d.loop, target, x, y, z, {d.s, d.t}});
    }
  }

  void finish_outputs() {
    for (size_t k = 0; k < e_.outputs.size(); ++k) {
      const int32_t id = e_.outputs[k];
      const int16_t target = int16_t(first_output() + int(k));
      if (is_constant(id)) p_.steps_.push_back({Loop::fill, target, -1, -1, -1, {value(id), 0}});
      p_.sources_.push_back(is_constant(id) ? target : buffer_[size_t(id)]);
    }
  }

  const Expression& e_;
  BlockProgram& p_;
  std::vector<int> uses_;
  std::vector<int32_t> inner_;  // what pair() absorbed
  std::vector<Draft> drafts_;
  std::vector<int16_t> buffer_;
};

BlockProgram::BlockProgram(const Expression& expression) {
  BlockCompiler(expression, *this).run();
  vector_math(Prim::exp, nullptr, nullptr, 0);  // chooses its variant now, so that run() allocates nothing
}

void BlockProgram::run(float* const* buffers, int count, std::span<const Fetch> next) const noexcept {
  // One or two loops keep up with the processor's own prefetching; measured, fetching on top of it
  // costs them a third of their speed and gains longer programs as much. Without any, the operands
  // are read by a reduction, across rows, which no prefetcher foresees.
  const int64_t steps = int64_t(steps_.size());
  if (steps == 0)
    for (const Fetch& f : next) fetch(f.data, 0, f.bytes);
  if (steps < 3) next = {};
  for (int64_t i = 0; i < steps; ++i) {
    for (const Fetch& f : next) fetch(f.data, f.bytes * i / steps, f.bytes * (i + 1) / steps);
    const Step& step = steps_[size_t(i)];
    if (step.loop >= Loop::exp)
      vector_math(prim_of(step.loop), buffers[step.a], buffers[step.target], count);
    else
      run_loop(step, buffers, count);
  }
}

bool BlockProgram::reads_after_write(int input, int output) const {
  const int target = inputs_ + int(randoms_.size()) + output;
  for (int k = 0; k < outputs_; ++k)
    if (k != output && sources_[size_t(k)] == input) return true;  // taken over when all is done
  bool written = false;
  for (const Step& s : steps_) {
    if (written && (s.a == input || s.b == input || s.c == input)) return true;
    written |= s.target == target;
  }
  return false;
}

}  // namespace ren
