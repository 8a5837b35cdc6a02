// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/cuda_source.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "engine/base/status.h"

namespace ren {
namespace {

// Shortest text that reads back as the same float; infinities and NaN by their bits, for which
// NVRTC has no literal without a header.
std::string literal(double value) {
  const float f = float(value);
  if (!std::isfinite(f)) return fmt::format("__int_as_float(0x{:08x})", std::bit_cast<uint32_t>(f));
  std::string text = fmt::format("{}", f);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  text += "f";
  return std::signbit(f) ? "(" + text + ")" : text;
}

std::string operation(const ExprNode& n, const std::string& a, const std::string& b, const std::string& c) {
  // clang-format off
  switch (n.prim) {
    case Prim::input:
    case Prim::constant:
    case Prim::uniform: break;
    case Prim::add: return fmt::format("{} + {}", a, b);
    case Prim::sub: return fmt::format("{} - {}", a, b);
    case Prim::mul: return fmt::format("{} * {}", a, b);
    case Prim::div: return fmt::format("{} / {}", a, b);
    case Prim::max: return fmt::format("ren_max({}, {})", a, b);
    case Prim::min: return fmt::format("ren_min({}, {})", a, b);
    case Prim::neg: return fmt::format("-{}", a);
    case Prim::abs: return fmt::format("fabsf({})", a);
    case Prim::exp: return fmt::format("expf({})", a);
    case Prim::log: return fmt::format("logf({})", a);
    case Prim::sqrt: return fmt::format("sqrtf({})", a);
    case Prim::rsqrt: return fmt::format("rsqrtf({})", a);
    case Prim::reciprocal: return fmt::format("1.0f / {}", a);
    case Prim::tanh: return fmt::format("tanhf({})", a);
    case Prim::erf: return fmt::format("erff({})", a);
    case Prim::sigmoid: return fmt::format("ren_sigmoid({})", a);
    case Prim::softplus: return fmt::format("ren_softplus({})", a);
    case Prim::less: return fmt::format("{} < {} ? 1.0f : 0.0f", a, b);
    case Prim::less_equal: return fmt::format("{} <= {} ? 1.0f : 0.0f", a, b);
    case Prim::equal: return fmt::format("{} == {} ? 1.0f : 0.0f", a, b);
    case Prim::select: return fmt::format("{} != 0.0f ? {} : {}", a, b, c);
  }
  // clang-format on
  fail(StatusCode::internal, "{} is no operation", name_of(n.prim));
}

}  // namespace

CudaExpression cuda_expression(const Expression& expression, std::span<const std::string> inputs,
                               std::string_view random_call, std::string_view prefix) {
  require(int32_t(inputs.size()) >= expression.inputs, "{} operands for {} inputs", inputs.size(),
          expression.inputs);
  require(!expression.uses_random() || !random_call.empty(), "no source of random numbers for {}",
          expression.text());
  CudaExpression result;
  std::vector<std::string> names;
  const auto at = [&](int32_t id) { return id < 0 ? std::string() : names[size_t(id)]; };
  int locals = 0;
  for (const ExprNode& n : expression.nodes) {
    std::string value;
    if (n.prim == Prim::input) {
      names.push_back(inputs[size_t(n.index)]);
      continue;
    }
    if (n.prim == Prim::constant) {
      names.push_back(literal(n.value));
      continue;
    }
    if (n.prim == Prim::uniform)
      value = fmt::format("{}{}u, {})", random_call, uint32_t(n.index), n.value != 0);
    else
      value = operation(n, at(n.a), at(n.b), at(n.c));
    names.push_back(fmt::format("{}{}", prefix, locals++));
    result.statements += fmt::format("const float {} = {};\n", names.back(), value);
  }
  for (int32_t id : expression.outputs) result.outputs.push_back(at(id));
  return result;
}

std::string_view cuda_prelude() {
  return R"cuda(
__device__ __forceinline__ float ren_max(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float ren_min(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ float ren_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float ren_softplus(float x) { return ren_max(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ __forceinline__ uint4 ren_philox(uint4 c, uint2 k) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    c = make_uint4(__umulhi(0xCD9E8D57u, c.z) ^ c.y ^ k.x, 0xCD9E8D57u * c.z,
                   __umulhi(0xD2511F53u, c.x) ^ c.w ^ k.y, 0xD2511F53u * c.x);
    k.x += 0x9E3779B9u;
    k.y += 0xBB67AE85u;
  }
  return c;
}

// Neighbouring elements share a block; calls in one thread for four of them, unrolled, compute it once.
__device__ __forceinline__ float ren_uniform(const int* random_state, unsigned sample, unsigned long long element,
                                             unsigned stream, bool per_sample) {
  const unsigned long long global = (unsigned long long)(unsigned)random_state[3] + sample;
  const uint4 counter = make_uint4(per_sample ? 0u : unsigned(element >> 2), unsigned(global),
                                   (2u * stream + (per_sample ? 1u : 0u)) ^ (unsigned(global >> 32) << 16),
                                   unsigned(random_state[2]));
  const uint4 block = ren_philox(counter, make_uint2(unsigned(random_state[0]), unsigned(random_state[1])));
  const unsigned word = per_sample ? 0u : unsigned(element & 3u);
  const unsigned bits = word == 0u ? block.x : word == 1u ? block.y : word == 2u ? block.z : block.w;
  return float(bits >> 8) * (1.0f / 16777216.0f);
}
)cuda";
}

}  // namespace ren
