// SPDX-License-Identifier: Apache-2.0
#include "engine/pointwise/block_program.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/rng.h"
#include "engine/pointwise/activations.h"
#include "engine/pointwise/vector_math.h"

namespace ren {
namespace {

double ulps(float found, double wanted) {
  const float nearest = float(wanted);
  if (std::isnan(wanted)) return std::isnan(found) ? 0 : 1e9;
  if (std::isinf(nearest)) return found == nearest || std::fabs(double(found)) > 3.4e38 ? 0 : 1e9;
  const float magnitude = std::max(std::fabs(nearest), std::numeric_limits<float>::min());
  const double ulp =
      double(std::nextafter(magnitude, std::numeric_limits<float>::infinity())) - double(magnitude);
  return std::fabs(double(found) - wanted) / ulp;
}

class VectorMath : public testing::TestWithParam<Prim> {
 protected:
  const std::vector<VectorMathVariant> variants = vector_math_variants();
};

// Floats of all magnitudes, by their bits: a prime stride visits about a million of them.
TEST_P(VectorMath, IsWithinThreeUlps) {
  std::vector<float> x, y;
  for (uint64_t bits = 0; bits < (1ull << 32); bits += 4099)
    x.push_back(std::bit_cast<float>(uint32_t(bits)));
  for (double v = -20; v < 20; v += 0.001) x.push_back(float(v));
  y.resize(x.size());
  for (const VectorMathVariant& variant : variants) {
    variant.run(GetParam(), x.data(), y.data(), int(x.size()));
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (const double error = ulps(y[i], apply_prim(GetParam(), double(x[i]), 0, 0)); !(error <= worst))
        worst = error, at = x[i];
    EXPECT_LE(worst, 3) << variant.name << ": " << name_of(GetParam()) << "(" << at << ")";
  }
}

TEST_P(VectorMath, GivesTheSameWhereverAnElementLies) {
  float x[67], whole[67];
  for (int i = 0; i < 67; ++i) x[i] = float(i - 30) * 0.37f;
  for (const VectorMathVariant& variant : variants) {
    variant.run(GetParam(), x, whole, 67);
    for (int begin = 0; begin < 67; ++begin) {
      float part[67];
      variant.run(GetParam(), x + begin, part, 67 - begin);
      ASSERT_EQ(std::memcmp(part, whole + begin, size_t(67 - begin) * sizeof(float)), 0)
          << variant.name << " from " << begin;
    }
  }
}

TEST_P(VectorMath, HandlesSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {infinity, -infinity, nan, 0.0f, -0.0f, 1e-45f, 3.4e38f, -3.4e38f};
  float y[8];
  for (const VectorMathVariant& variant : variants) {
    variant.run(GetParam(), x, y, 8);
    for (int i = 0; i < 8; ++i)
      EXPECT_LE(ulps(y[i], apply_prim(GetParam(), double(x[i]), 0, 0)), 3) << variant.name << " of " << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, VectorMath,
                         testing::Values(Prim::exp, Prim::log, Prim::tanh, Prim::erf, Prim::sigmoid,
                                         Prim::softplus),
                         [](const testing::TestParamInfo<Prim>& info) { return name_of(info.param); });

TEST(VectorUniform, HasTheDefinitionsBits) {
  for (uint64_t first : {0, 1, 2, 3, 5, 64, 1000003}) {
    const RandomPoint point{{11, 12}, 13, 14, first};
    float out[300];
    vector_uniform(point, 6, out, 300);
    for (int i = 0; i < 300; ++i) {
      RandomPoint p = point;
      p.element += uint64_t(i);
      ASSERT_EQ(out[i], uniform_at(p, 6, false)) << "element " << p.element;
    }
  }
}

// ---- Programs --------------------------------------------------------------------------------

// What the engine's arithmetic is: FP32, rounded after every primitive. Transcendentals are the
// vector functions', so that comparing bits checks the choice of loops and buffers alone.
float apply_rounded(Prim prim, float a, float b, float c) {
  switch (prim) {
    case Prim::exp:
    case Prim::log:
    case Prim::tanh:
    case Prim::erf:
    case Prim::sigmoid:
    case Prim::softplus: {
      float y;
      vector_math(prim, &a, &y, 1);
      return y;
    }
    case Prim::rsqrt:
      return 1.0f / std::sqrt(a);
    // One operation on floats in double, rounded once, is the float operation.
    default:
      return float(apply_prim(prim, double(a), double(b), double(c)));
  }
}

std::vector<float> expected(const Expression& e, const std::vector<float>& x) {
  std::vector<float> v;
  const auto at = [&](int32_t id) { return id < 0 ? 0.0f : v[size_t(id)]; };
  for (const ExprNode& n : e.nodes) {
    if (n.prim == Prim::input)
      v.push_back(x[size_t(n.index)]);
    else if (n.prim == Prim::constant)
      v.push_back(float(n.value));
    else
      v.push_back(apply_rounded(n.prim, at(n.a), at(n.b), at(n.c)));
  }
  std::vector<float> y;
  for (int32_t id : e.outputs) y.push_back(at(id));
  return y;
}

void expect_bits(const Expression& e, uint64_t seed, int count = 77) {
  const BlockProgram program(e);
  std::vector<std::vector<float>> memory(size_t(program.buffers()), std::vector<float>(size_t(count)));
  const float specials[] = {
      0.0f, -0.0f, 1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
      -2.0f};
  RandomStream random(seed, 0, 0);
  for (int i = 0; i < e.inputs; ++i)
    for (float& v : memory[size_t(i)])
      v = random.uniform() < 0.1f ? specials[random.below(6)] : random.uniform(-2, 2);
  const auto inputs = memory;
  std::vector<float*> buffers;
  for (auto& m : memory) buffers.push_back(m.data());
  program.run(buffers.data(), count);
  for (int i = 0; i < count; ++i) {
    std::vector<float> x;
    for (int k = 0; k < e.inputs; ++k) x.push_back(inputs[size_t(k)][size_t(i)]);
    const std::vector<float> y = expected(e, x);
    for (size_t k = 0; k < y.size(); ++k) {
      const float found = memory[size_t(program.source(int(k)))][size_t(i)];
      if (std::isnan(found) && std::isnan(y[k])) continue;
      ASSERT_EQ(found, y[k]) << e.text() << " element " << i << " output " << k;
    }
  }
}

TEST(BlockProgram, ActivationsAndTheirGradients) {
  for (const ActivationInfo& info : activations()) {
    expect_bits(activation(info.name), 1);
    expect_bits(differentiate(activation(info.name), std::vector<int>{0}), 2);
  }
}

// Constants in every position, values used once and often, several outputs, also equal ones, inputs
// and constants among them.
TEST(BlockProgram, RandomExpressions) {
  const Prim prims[] = {Prim::add, Prim::sub, Prim::mul,  Prim::div,   Prim::max,        Prim::min,
                        Prim::neg, Prim::abs, Prim::less, Prim::equal, Prim::less_equal, Prim::select,
                        Prim::add, Prim::sub, Prim::mul,  Prim::sqrt,  Prim::rsqrt,      Prim::reciprocal};
  RandomStream random(23, 0, 0);
  for (int trial = 0; trial < 3000; ++trial) {
    ExpressionBuilder e;
    std::vector<Value> values{e.input(0),    e.input(1),      e.input(2),
                              e.constant(0), e.constant(0.5), e.constant(-3)};
    const int size = 1 + int(random.below(12));
    const auto pick = [&] {
      const uint32_t n = uint32_t(values.size());
      return values[random.uniform() < 0.5f ? n - 1 - random.below(std::min(n, 3u)) : random.below(n)];
    };
    for (int i = 0; i < size; ++i) {
      const Prim prim = prims[random.below(18)];
      const Value a = pick(), b = arity(prim) > 1 ? pick() : -1, c = arity(prim) > 2 ? pick() : -1;
      values.push_back(e.apply(prim, a, b, c));
    }
    std::vector<Value> outputs{values.back()};
    while (random.uniform() < 0.5f) outputs.push_back(pick());
    expect_bits(e.finish(outputs, 3), uint64_t(trial) + 100, 1 + int(random.below(40)));
  }
}

TEST(BlockProgram, TemporariesAreReused) {
  ExpressionBuilder e;
  Value v = e.input(0);
  for (int i = 0; i < 20; ++i) v = e.apply(i % 2 ? Prim::exp : Prim::tanh, v);
  EXPECT_LE(BlockProgram(e.finish({v}, 1)).temporaries(), 1);
}

TEST(BlockProgram, KnowsWhatIsReadAfterAnOutputIsWritten) {
  ExpressionBuilder e;
  const Value x = e.input(0), first = e.apply(Prim::exp, x), second = e.add(e.apply(Prim::tanh, first), x);
  const BlockProgram program(e.finish({first, second}, 1));
  EXPECT_TRUE(program.reads_after_write(0, 0));
  EXPECT_FALSE(program.reads_after_write(0, 1));
  EXPECT_FALSE(BlockProgram(activation("Relu")).reads_after_write(0, 0));
  ExpressionBuilder f;
  const BlockProgram repeat(f.finish({f.apply(Prim::exp, f.input(0)), f.input(0)}, 1));
  EXPECT_TRUE(repeat.reads_after_write(0, 0)) << "output 1 is input 0, taken over at the end";
}

}  // namespace
}  // namespace ren
