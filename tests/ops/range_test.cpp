// SPDX-License-Identifier: Apache-2.0
#include "engine/range/range.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/half.h"
#include "engine/base/memory.h"
#include "engine/base/threads.h"
#include "engine/device/cpu/cpu_device.h"
#include "harness.h"

namespace ren::test {
namespace {

constexpr int kFamilies[] = {int(Region::W), int(Region::E), int(Region::G), int(Region::M)};

// Parameter families laid out as the plan does it, beside the same values in double.
class Families final : public ReferenceRegions {
 public:
  Graph graph;
  GraphBuilder builder{graph};
  std::vector<Segment> segments;
  DType copy_type;
  std::map<std::pair<int, int>, Values> values;  // [region, parameter]
  std::map<TensorId, Values> scalars;

  explicit Families(DType copy = DType::f16) : copy_type(copy) {
    const int64_t sizes[] = {1, 7, 64, 1000, 40000, 3, 129};
    uint64_t offset = 0;
    for (size_t p = 0; p < std::size(sizes); ++p) {
      Parameter parameter;
      parameter.shape = {1, 1, 1, sizes[p]};
      parameter.trainable = p != 3;
      parameter.lars = p != 5;
      parameter.learning_rate_multiplier = p == 2 ? 0.1f : 1.0f;
      parameter.weight_decay_multiplier = p == 4 ? 0.0f : 1.0f;
      builder.parameter(parameter);
      uint32_t flags =
          (parameter.trainable ? 0u : uint32_t(kFrozen)) | (parameter.lars ? uint32_t(kLars) : 0u);
      segments.push_back({offset, uint64_t(sizes[p]), parameter.learning_rate_multiplier,
                          parameter.weight_decay_multiplier, flags});
      offset += 2 * align_up(2 * uint64_t(sizes[p]) + 16);
    }
    bytes_ = offset;
    for (const int region : kFamilies) blocks_[region] = allocate_aligned(bytes_);
    blocks_[int(Region::A)] = allocate_aligned(bytes_ / 2);
    for (size_t p = 0; p < segments.size(); ++p)
      for (const int region : kFamilies)
        set(Region(region), p, random_values(sizes[p], p * 16 + uint64_t(region)));
    for (size_t p = 0; p < segments.size(); ++p) values[{int(Region::A), int(p)}].resize(size_t(sizes[p]));
  }

  void set(Region region, size_t p, const Values& v) {
    Values& kept = values[{int(region), int(p)}];
    kept = v;
    for (size_t i = 0; i < v.size(); ++i) {
      address(region, p)[i] = float(v[i]);
      kept[i] = double(float(v[i]));
    }
  }

  float* address(Region region, size_t p) {
    return reinterpret_cast<float*>(blocks_[int(region)].get() + segments[p].offset);
  }

  std::vector<double>* slot(Region family, int parameter) override {
    const auto found = values.find({int(family), parameter});
    return found == values.end() ? nullptr : &found->second;
  }

  TensorId scalar(double value, DType type = DType::f32) {
    const TensorId id = builder.tensor("scalar", {{}, type}, Region::S);
    scalars[id] = {stored(value, type)};
    return id;
  }

  Node node(Op op, std::vector<TensorId> inputs, AttributesPtr attributes) {
    emit(builder, op, name_of(op), std::move(inputs), std::move(attributes));
    return graph.nodes.back();
  }

  void run_reference(const Node& node) {
    ReferenceCall call{graph, node, {}, {}, this};
    for (const TensorId id : node.inputs) call.inputs.push_back(id == kNoTensor ? nullptr : &scalars[id]);
    definition_of(node.op).reference(call);
  }

  // Gives back the scalars after the run.
  std::map<TensorId, double> run_cpu(const Node& node) {
    const auto device = open_cpu_device();
    const OpBackend& backend = *cpu_backend().kernels(node.op);
    const NodeChoice choice = backend.prepare({graph, node, *device});
    const AlignedBlock workspace = allocate_aligned(choice.workspace_bytes + 1);
    std::vector<RegionSpan> regions(kRegions);
    for (auto& [region, block] : blocks_)
      regions[size_t(region)] = {block.get(), region == int(Region::A) ? bytes_ / 2 : bytes_};
    std::vector<std::byte*> inputs;
    std::map<TensorId, std::array<std::byte, 4>> memory;
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor) {
        inputs.push_back(nullptr);
        continue;
      }
      std::byte* at = memory[id].data();
      const double value = scalars[id][0];
      if (graph.at(id).dtype == DType::f32) {
        const auto f = float(value);
        std::memcpy(at, &f, 4);
      } else {
        const auto i = int32_t(value);
        std::memcpy(at, &i, 4);
      }
      inputs.push_back(at);
    }
    const auto kernel =
        backend.bind({graph, node, choice, *device, inputs, {}, workspace.get(), regions, segments});
    kernel->launch();
    device->synchronize();
    std::map<TensorId, double> after;
    for (auto& [id, bytes] : memory) {
      float f;
      int32_t i;
      std::memcpy(&f, bytes.data(), 4);
      std::memcpy(&i, bytes.data(), 4);
      after[id] = graph.at(id).dtype == DType::f32 ? double(f) : double(i);
    }
    return after;
  }

  void expect_region(Region region, double tolerance, double scale) {
    for (size_t p = 0; p < segments.size(); ++p) {
      const float* found = address(region, p);
      expect_close(Values(found, found + segments[p].elements), values[{int(region), int(p)}], tolerance,
                   scale, fmt::format("{}[{}]", name_of(region), p));
    }
  }

  void expect_copies() {
    for (size_t p = 0; p < segments.size(); ++p) {
      const auto* found =
          reinterpret_cast<const uint16_t*>(blocks_[int(Region::A)].get() + segments[p].offset / 2);
      const bool frozen = (segments[p].flags & kFrozen) != 0;
      for (size_t i = 0; i < segments[p].elements; ++i) {
        const float w = address(Region::W, p)[i];
        const uint16_t wanted = frozen ? 0 : copy_type == DType::f16 ? to_f16(w) : to_bf16(w);
        ASSERT_EQ(found[i], wanted) << p << " " << i;
      }
    }
  }

  // Gaps between slots hold zeros before and must after.
  void expect_gaps(Region region) {
    const std::byte* base = blocks_[int(region)].get();
    for (size_t p = 0; p < segments.size(); ++p) {
      const uint64_t end = p + 1 < segments.size() ? segments[p + 1].offset : bytes_;
      for (uint64_t at = segments[p].offset + 4 * segments[p].elements; at < end; ++at)
        ASSERT_EQ(base[at], std::byte{0}) << name_of(region) << " after slot " << p;
    }
  }

 private:
  uint64_t bytes_ = 0;
  std::map<int, AlignedBlock> blocks_;
};

struct Rule {
  bool momentum, nesterov, lars, copy;
};

class OptimizerStep : public testing::TestWithParam<Rule> {};

TEST_P(OptimizerStep, ThreeStepsAgreeWithTheReference) {
  const Rule rule = GetParam();
  Families f;
  auto a = std::make_shared<OptimizerAttributes>();
  a->use_momentum = rule.momentum;
  a->nesterov = rule.nesterov;
  a->has_copy = rule.copy;
  std::vector<TensorId> inputs{f.scalar(0.1), f.scalar(0.9), f.scalar(5e-4), f.scalar(0)};
  if (rule.lars) inputs.push_back(f.scalar(0.001));
  const Node node = f.node(rule.lars ? Op::range_lars : Op::range_sgd, inputs, a);
  for (int step = 0; step < 3; ++step) {
    f.run_reference(node);
    f.run_cpu(node);
    for (size_t p = 0; p < f.segments.size(); ++p)
      f.set(Region::G, p, random_values(int64_t(f.segments[p].elements), 100 * uint64_t(step) + p));
  }
  // Three steps of four roundings each on values up to about 3.
  f.expect_region(Region::W, 12 * 0x1p-24, 1);
  f.expect_region(Region::M, 12 * 0x1p-24, 1);
  if (rule.copy) f.expect_copies();
  for (const Region region : {Region::W, Region::M}) f.expect_gaps(region);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerStep,
                         testing::Values(Rule{false, false, false, false}, Rule{true, false, false, false},
                                         Rule{true, true, false, true}, Rule{true, false, true, false},
                                         Rule{true, true, true, true}, Rule{false, false, true, false}));

TEST(Optimizer, OverflowLeavesEverythingAsItWas) {
  Families f;
  auto a = std::make_shared<OptimizerAttributes>();
  a->has_copy = true;
  const Node node = f.node(Op::range_sgd, {f.scalar(0.1), f.scalar(0.9), f.scalar(5e-4), f.scalar(1)}, a);
  f.run_cpu(node);
  for (const Region region : {Region::W, Region::M}) f.expect_region(region, 0, 0);
  f.run_reference(node);
  for (const Region region : {Region::W, Region::M}) f.expect_region(region, 0, 0);
}

TEST(Optimizer, FrozenSegmentsStay) {
  Families f;
  const Values before = f.values[{int(Region::W), 3}];
  f.run_cpu(f.node(Op::range_sgd, {f.scalar(0.1), f.scalar(0.9), f.scalar(5e-4)},
                   std::make_shared<OptimizerAttributes>()));
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(double(f.address(Region::W, 3)[i]), before[i]);
}

// torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True) on w = 1 with gradients
// 0.5 and -0.25, by hand.
TEST(Optimizer, NesterovByHand) {
  Families f;
  f.set(Region::W, 0, {1});
  f.set(Region::M, 0, {0});
  auto a = std::make_shared<OptimizerAttributes>();
  a->nesterov = true;
  const Node node = f.node(Op::range_sgd, {f.scalar(0.1), f.scalar(0.9), f.scalar(0.01)}, a);
  double w = 1, m = 0;
  for (const double g : {0.5, -0.25}) {
    f.set(Region::G, 0, {g});
    f.run_cpu(node);
    const double d = g + 0.01 * w;
    m = 0.9 * m + d;
    w -= 0.1 * (d + 0.9 * m);
  }
  EXPECT_NEAR(f.address(Region::W, 0)[0], w, 1e-6);
}

// Two steps with a ratio that changes: each gradient is scaled by its own step's ratio before
// it enters the momentum.
TEST(Optimizer, LarsByHand) {
  Families f;
  f.set(Region::W, 1, {3, 0, 4, 0, 0, 0, 0});  // norm 5
  f.set(Region::M, 1, Values(7, 0));
  const Node node =
      f.node(Op::range_lars, {f.scalar(0.5), f.scalar(0.9), f.scalar(0), kNoTensor, f.scalar(0.02)},
             std::make_shared<OptimizerAttributes>());
  f.set(Region::G, 1, {0, 2, 0, 0, 0, 0, 0});  // norm 2: ratio 0.02 * 5 / 2 = 0.05
  f.run_cpu(node);
  EXPECT_NEAR(f.address(Region::M, 1)[1], 0.1, 1e-7);
  EXPECT_NEAR(f.address(Region::W, 1)[1], -0.05, 1e-7);
  const double norm = std::sqrt(25 + 0.0025);
  f.set(Region::G, 1, {0, 0.5, 0, 0, 0, 0, 0});
  f.run_cpu(node);
  const double m = 0.9 * 0.1 + 0.02 * norm / 0.5 * 0.5;
  EXPECT_NEAR(f.address(Region::M, 1)[1], m, 1e-7);
  EXPECT_NEAR(f.address(Region::W, 1)[1], -0.05 - 0.5 * m, 1e-7);
}

TEST(Optimizer, LarsWithZeroNorms) {
  for (const bool zero_weight : {false, true}) {
    Families f;
    f.set(zero_weight ? Region::W : Region::G, 4, Values(40000, 0));
    auto a = std::make_shared<OptimizerAttributes>();
    const Node node =
        f.node(Op::range_lars, {f.scalar(0.1), f.scalar(0.9), f.scalar(5e-4), kNoTensor, f.scalar(0.001)}, a);
    f.run_reference(node);
    f.run_cpu(node);
    f.expect_region(Region::W, 4 * 0x1p-24, 1);  // four roundings
    if (!zero_weight) continue;
    // A ratio of 1: weights that begin at zero move at the plain rate.
    const double m = double(float(random_values(40000, 4 * 16 + uint64_t(Region::M))[0]));
    const double g = (*f.slot(Region::G, 4))[0];
    EXPECT_NEAR(f.address(Region::W, 4)[0], -0.1 * (0.9 * m + g), 1e-6);
  }
}

TEST(Optimizer, TinyGradientsDoNotUnderflowTheirNorm) {
  Families f;
  f.set(Region::G, 2, Values(64, 1e-25));
  const Node node =
      f.node(Op::range_lars, {f.scalar(0.1), f.scalar(0), f.scalar(0), kNoTensor, f.scalar(1e-18)},
             std::make_shared<OptimizerAttributes>());
  f.run_reference(node);
  f.run_cpu(node);
  f.expect_region(Region::M, 8 * 0x1p-24, 0);  // relative: nothing was lost
}

TEST(RangeCast, RoundsEveryWeight) {
  for (const DType type : {DType::f16, DType::bf16}) {
    Families f(type);
    for (Segment& s : f.segments) s.flags &= ~uint32_t(kFrozen);  // the cast knows no segments
    f.run_cpu(f.node(Op::range_cast, {}, std::make_shared<RangeAttributes>(Region::W, Region::A, type)));
    f.expect_copies();
  }
}

TEST(RangeCopyAndClear, WholeRegions) {
  Families f;
  for (const Node& node :
       {f.node(Op::range_copy, {}, std::make_shared<RangeAttributes>(Region::W, Region::E)),
        f.node(Op::range_clear, {}, std::make_shared<RangeAttributes>(Region::G, Region::G))}) {
    f.run_reference(node);
    f.run_cpu(node);
  }
  f.expect_region(Region::E, 0, 0);
  f.expect_region(Region::G, 0, 0);
  const auto kept = [&](Region region) { return *f.slot(region, 1); };
  EXPECT_EQ(kept(Region::G)[3], 0);
  EXPECT_EQ(kept(Region::E), kept(Region::W));
}

TEST(RangeEma, AveragesAndSkipsOverflow) {
  for (const double overflow : {0.0, 1.0}) {
    Families f;
    const Node node =
        f.node(Op::range_ema, {f.scalar(0.999), f.scalar(overflow)}, std::make_shared<EmaAttributes>());
    f.run_reference(node);
    f.run_cpu(node);
    // 1 - decay is exact, decay itself was rounded alike for both; two products and a sum.
    f.expect_region(Region::E, overflow != 0 ? 0 : 3 * 0x1p-24, 1);
    f.expect_gaps(Region::E);
  }
}

TEST(RangeCheckFinite, UnscalesAndFindsWhatIsNotFinite) {
  for (const double bad :
       {0.0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    Families f;
    if (bad != 0) {
      Values g = f.values[{int(Region::G), 4}];
      g[39999] = bad;
      f.set(Region::G, 4, g);
    }
    const TensorId scale = f.scalar(1024), overflow = f.scalar(7);
    const Node node = f.node(Op::range_check_finite, {scale, overflow},
                             std::make_shared<RangeAttributes>(Region::G, Region::G));
    const auto after = f.run_cpu(node);
    f.run_reference(node);
    EXPECT_EQ(after.at(overflow), bad == 0 ? 0 : 1) << bad;
    EXPECT_EQ(f.scalars[overflow][0], bad == 0 ? 0 : 1) << bad;
    f.expect_region(Region::G, 0, 0);  // a power of two is exact
    f.expect_gaps(Region::G);
  }
}

struct ScaleState {
  double overflow, scale, tracker, skipped, in_a_row, step;
};

ScaleState run_scale(const ScaleState& s, LossScaleAttributes attributes, bool reference) {
  Families f;
  const std::vector<TensorId> ids{f.scalar(s.overflow),
                                  f.scalar(s.scale),
                                  f.scalar(s.tracker, DType::i32),
                                  f.scalar(s.skipped, DType::i32),
                                  f.scalar(s.in_a_row, DType::i32),
                                  f.scalar(s.step, DType::i32)};
  const Node node =
      f.node(Op::range_update_loss_scale, ids, std::make_shared<LossScaleAttributes>(attributes));
  if (reference) {
    f.run_reference(node);
    return {f.scalars[ids[0]][0], f.scalars[ids[1]][0], f.scalars[ids[2]][0],
            f.scalars[ids[3]][0], f.scalars[ids[4]][0], f.scalars[ids[5]][0]};
  }
  const auto v = f.run_cpu(node);
  return {v.at(ids[0]), v.at(ids[1]), v.at(ids[2]), v.at(ids[3]), v.at(ids[4]), v.at(ids[5])};
}

void expect_scale(const ScaleState& before, const ScaleState& after, LossScaleAttributes attributes = {}) {
  for (const bool reference : {false, true}) {
    const ScaleState s = run_scale(before, attributes, reference);
    EXPECT_EQ(s.scale, after.scale);
    EXPECT_EQ(s.tracker, after.tracker);
    EXPECT_EQ(s.skipped, after.skipped);
    EXPECT_EQ(s.in_a_row, after.in_a_row);
    EXPECT_EQ(s.step, after.step);
  }
}

TEST(RangeLossScale, FollowsGradScaler) {
  expect_scale({0, 1024, 5, 2, 1, 9}, {0, 1024, 6, 2, 0, 10});
  expect_scale({1, 1024, 5, 2, 1, 9}, {1, 512, 0, 3, 2, 10});
  expect_scale({0, 1024, 1999, 2, 0, 9}, {0, 2048, 0, 2, 0, 10});
  expect_scale({1, 1, 5, 2, 1, 9}, {1, 1, 0, 3, 2, 10});                             // the floor
  expect_scale({0, 65536.0 * 256, 1999, 0, 0, 9}, {0, 65536.0 * 256, 0, 0, 0, 10});  // the ceiling
  LossScaleAttributes off;
  off.enabled = false;
  expect_scale({1, 1, 5, 2, 1, 9}, {1, 1, 5, 2, 1, 10}, off);
}

TEST(RangeThreads, ResultsRepeatBitForBit) {
  Values first;
  for (int run = 0; run < 2; ++run) {
    Families f;
    f.run_cpu(f.node(Op::range_lars,
                     {f.scalar(0.1), f.scalar(0.9), f.scalar(5e-4), kNoTensor, f.scalar(0.001)},
                     std::make_shared<OptimizerAttributes>()));
    const Values w(f.address(Region::W, 4), f.address(Region::W, 4) + 40000);
    if (run == 0) first = w;
    EXPECT_EQ(w, first);
  }
}

}  // namespace
}  // namespace ren::test
