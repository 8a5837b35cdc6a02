// SPDX-License-Identifier: Apache-2.0
// Written on GCC's vector types, in three widths, so that it is vectorised whatever the
// compiler's heuristics. Contraction to FMA stays on here: the error bounds allow for it.
#pragma GCC optimize("O3,no-math-errno,no-trapping-math")
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors pass between inlined functions alone
#include "engine/pointwise/vector_math.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/vector_clones.h"

namespace ren {
namespace {

#define REN_INLINE [[gnu::always_inline]] inline

template <int N>
struct Vector {
  typedef float F __attribute__((vector_size(4 * N)));
  typedef int32_t I __attribute__((vector_size(4 * N)));
  typedef uint32_t U __attribute__((vector_size(4 * N)));
};

// Coefficients: minimax fits in double, rounded to float (reweighted least squares on Chebyshev
// nodes); the comment gives the fitted function and its relative error in exact arithmetic.

template <int N>
struct Functions {
  using F = typename Vector<N>::F;
  using I = typename Vector<N>::I;
  using U = typename Vector<N>::U;

  REN_INLINE static F splat(float x) { return x - F{}; }  // x - 0, not 0 + x: keeps -0
  REN_INLINE static F abs(const F& x) { return (F)((U)x & 0x7FFFFFFFu); }
  REN_INLINE static F with_sign(const F& magnitude, const F& sign) {
    return (F)((U)magnitude | ((U)sign & 0x80000000u));
  }

  REN_INLINE static F exp(const F& x) {
    const F round = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
    F clamped = x < -104.0f ? splat(-104.0f) : x;  // e^-104 rounds to 0, e^89 to infinity
    clamped = clamped > 89.0f ? splat(89.0f) : clamped;
    const F shifted = clamped * 1.44269504f + round;
    const F n = shifted - round;
    F r = clamped - n * 0.693359375f;  // ln 2 in two parts, the first with 9 bits: n * it is exact
    r = r + n * 2.12194440e-4f;
    // (e^r - 1 - r) / r^2 on [-0.35, 0.35], 3e-9
    F p = 1.381314243e-03f * r + 8.369418792e-03f;
    p = p * r + 4.166845605e-02f;
    p = p * r + 1.666651517e-01f;
    p = p * r + 4.999999404e-01f;
    p = p * (r * r) + r + 1.0f;
    // 2^n in two factors, because n reaches -150 and 128.
    const I k = (I)((U)shifted - (U)round), half = k >> 1;
    return p * (F)((U)(half + 127) << 23) * (F)((U)(k - half + 127) << 23);
  }

  REN_INLINE static F log(const F& x) {
    const I tiny = x < 1.17549435e-38f;
    const U bits = (U)(tiny ? x * 8388608.0f : x);
    const I e = (I)(bits - 0x3F3504F3u) >> 23;  // of x = 2^e * m, m in [sqrt(1/2), sqrt(2))
    const F f = (F)(bits - ((U)e << 23)) - 1.0f;
    const F n = __builtin_convertvector(e, F) - (tiny ? splat(23.0f) : F{});
    // (log(1 + f) - f + f^2/2) / f^3, 6e-9
    F p = -7.632208616e-02f * f + 1.276082993e-01f;
    p = p * f - 1.316064745e-01f;
    p = p * f + 1.420188695e-01f;
    p = p * f - 1.662332565e-01f;
    p = p * f + 2.000122070e-01f;
    p = p * f - 2.500082254e-01f;
    p = p * f + 3.333333135e-01f;
    const F z = f * f;
    F result = p * (z * f) + (n * -2.12194440e-4f - 0.5f * z) + f + n * 0.693359375f;
    const F infinity = splat(std::numeric_limits<float>::infinity());
    result = x == infinity ? x : result;
    result = x == 0.0f ? -infinity : result;
    return x >= 0.0f ? result : splat(std::numeric_limits<float>::quiet_NaN());
  }

  REN_INLINE static F tanh(const F& x) {
    const F z = x * x;
    // (tanh(x) - x) / x^3 in x^2 up to 0.625^2, 4e-9
    F p = -5.704978481e-03f * z + 2.063907869e-02f;
    p = p * z - 5.373971164e-02f;
    p = p * z + 1.333144158e-01f;
    p = p * z - 3.333328068e-01f;
    const F near = p * (z * x) + x;
    const F magnitude = abs(x);
    const F far = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
    return magnitude < 0.625f ? near : with_sign(far, x);
  }

  REN_INLINE static F erf(const F& x) {
    const F z = x * x;
    // erf(x) / x in x^2 up to 1, 1e-9
    F p = 7.853857824e-05f * z - 8.010192541e-04f;
    p = p * z + 5.188327748e-03f;
    p = p * z - 2.685381100e-02f;
    p = p * z + 1.128358543e-01f;
    p = p * z - 3.761262596e-01f;
    p = p * z + 1.128379107e+00f;
    const F magnitude = abs(x);
    // log(erfc(a)) on [1, 4], 1e-9 of erf; beyond 4 erf rounds to 1
    const F a = magnitude > 4.0f ? splat(4.0f) : magnitude;
    F q = 1.855748997e-04f * a - 2.939615864e-03f;
    q = q * a + 2.180535160e-02f;
    q = q * a - 1.030374393e-01f;
    q = q * a - 6.382256150e-01f;
    q = q * a - 1.127040029e+00f;
    q = q * a - 3.537089215e-04f;
    return magnitude < 1.0f ? p * x : with_sign(1.0f - exp(q), x);
  }

  REN_INLINE static F sigmoid(const F& x) {
    const F e = exp(-abs(x)), positive = 1.0f / (1.0f + e);
    return x < 0.0f ? e * positive : positive;
  }

  REN_INLINE static F softplus(const F& x) {
    const F u = exp(-abs(x));
    // log(1 + u) / u on [0, 1], 5e-9
    F p = -3.243980696e-03f * u + 1.985126175e-02f;
    p = p * u - 5.695915967e-02f;
    p = p * u + 1.060361713e-01f;
    p = p * u - 1.530556977e-01f;
    p = p * u + 1.967593133e-01f;
    p = p * u - 2.495413274e-01f;
    p = p * u + 3.332996368e-01f;
    p = p * u - 4.999990165e-01f;
    p = p * u + 1.0f;
    return (x > 0.0f ? x : F{}) + p * u;  // a NaN comes through u
  }

  template <Prim prim>
  REN_INLINE static F apply(const F& x) {
    if constexpr (prim == Prim::exp) return exp(x);
    if constexpr (prim == Prim::log) return log(x);
    if constexpr (prim == Prim::tanh) return tanh(x);
    if constexpr (prim == Prim::erf) return erf(x);
    if constexpr (prim == Prim::sigmoid) return sigmoid(x);
    if constexpr (prim == Prim::softplus) return softplus(x);
  }

  template <Prim prim>
  REN_INLINE static void map(const float* x, float* y, int count) {
    int i = 0;
    for (; i + N <= count; i += N) {
      F v;
      std::memcpy(&v, x + i, sizeof v);
      v = apply<prim>(v);
      std::memcpy(y + i, &v, sizeof v);
    }
    if (i == count) return;
    F rest{};  // the tail goes the same way, so that a value doesn't depend on its place
    std::memcpy(&rest, x + i, size_t(count - i) * sizeof(float));
    rest = apply<prim>(rest);
    std::memcpy(y + i, &rest, size_t(count - i) * sizeof(float));
  }

  REN_INLINE static void run(Prim prim, const float* x, float* y, int count) {
    switch (prim) {
      case Prim::exp:
        return map<Prim::exp>(x, y, count);
      case Prim::log:
        return map<Prim::log>(x, y, count);
      case Prim::tanh:
        return map<Prim::tanh>(x, y, count);
      case Prim::erf:
        return map<Prim::erf>(x, y, count);
      case Prim::sigmoid:
        return map<Prim::sigmoid>(x, y, count);
      case Prim::softplus:
        return map<Prim::softplus>(x, y, count);
      default:
        return;
    }
  }
};

void run_baseline(Prim prim, const float* x, float* y, int count) { Functions<4>::run(prim, x, y, count); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void run_avx2(Prim prim, const float* x, float* y, int count) {
  Functions<8>::run(prim, x, y, count);
}
__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512"))) void
run_avx512(Prim prim, const float* x, float* y, int count) {
  Functions<16>::run(prim, x, y, count);
}
#endif

}  // namespace

std::vector<VectorMathVariant> vector_math_variants() {
  std::vector<VectorMathVariant> variants{{"baseline", run_baseline}};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) variants.push_back({"avx2", run_avx2});
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    variants.push_back({"avx512", run_avx512});
#endif
  return variants;
}

// Chosen when the library is loaded: a launch allocates nothing, the first one included.
static const auto run_best = vector_math_variants().back().run;

void vector_math(Prim prim, const float* x, float* y, int count) { run_best(prim, x, y, count); }

namespace {

constexpr int kLanes = 16;  // Philox blocks made side by side

// words[4 * i + j]: word j of the block whose counter begins with first + i.
REN_CLONES void philox_blocks(uint32_t first, const Philox::Counter& counter, Philox::Key key,
                              uint32_t* words) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = first + uint32_t(i);
    c1[i] = counter[1];
    c2[i] = counter[2];
    c3[i] = counter[3];
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i], p1 = uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = uint32_t(p1 >> 32) ^ c1[i] ^ key[0];
      c1[i] = uint32_t(p1);
      c2[i] = uint32_t(p0 >> 32) ^ c3[i] ^ key[1];
      c3[i] = uint32_t(p0);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  for (int i = 0; i < kLanes; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

}  // namespace

void vector_uniform(const RandomPoint& first, uint32_t stream, float* out, int count) {
  const Philox::Counter counter = random_counter(first, stream, false);
  uint32_t words[4 * kLanes];
  int64_t lane = int64_t(first.element % 4);
  uint32_t block = counter[0];
  for (int done = 0; done < count; block += kLanes, lane = 0) {
    philox_blocks(block, counter, first.key, words);
    const int take = int(std::min<int64_t>(4 * kLanes - lane, count - done));
    for (int i = 0; i < take; ++i) out[done + i] = Philox::to_unit(words[lane + i]);
    done += take;
  }
}

}  // namespace ren
