// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/cases.h"
#include "cuda/run_cuda.h"
#include "engine/base/half.h"
#include "engine/base/status.h"
#include "engine/device/cuda/launch.h"
#include "engine/ops/cuda_module.h"
#include "engine/range/range.h"

extern "C" const ren::Backend* ren_cuda_backend(int abi);

namespace ren::test {
namespace {

// A layer forward and backward as one program, captured and run again and again, gives what its
// kernels give one by one.
TEST(CudaProgram, RunsAsOneLaunch) {
  REN_NEED_GPU(device);
  for (const DType type : {DType::f32, DType::f16}) {
    Case c;
    auto conv = std::make_shared<ConvAttributes>();
    conv->pad_top = conv->pad_left = conv->pad_bottom = conv->pad_right = 1;
    const TensorId x = c.input("x", {8, 16, 16, 16}, type, 1), w = c.input("w", {32, 3, 3, 16}, type, 2);
    const TensorId y = c.add(Op::conv, {x, w, kNoTensor}, conv)[0];
    const auto statistics = c.add(Op::batch_norm_statistics, {y}, std::make_shared<BatchNormAttributes>());
    ExpressionBuilder e;
    const Value n = e.maximum(e.mul(e.sub(e.input(0), e.input(1)), e.input(2)), e.constant(0));
    const TensorId z =
        c.add(Op::pointwise, {y, statistics[0], statistics[1]},
              std::make_shared<PointwiseAttributes>(e.finish({n}, 3), std::vector<DType>{type}))[0];
    const auto pooled = c.add(Op::max_pool, {z}, pool(2, 2, 0, false, false));
    const auto dz = c.add(Op::max_pool_backward, {pooled[0], pooled[1], z}, pool(2, 2, 0, false, false));
    c.add(Op::conv_backward_weights, {x, dz[0], w}, conv);

    DeviceTensors tensors(*device, c);
    BoundCase bound = bind_case(*device, c, tensors, Chosen::measured);
    for (const auto& kernel : bound.kernels) kernel->launch();
    device->synchronize();
    const auto wanted = tensors.read();
    tensors.write_inputs();
    const auto program = device->make_program(std::move(bound.kernels));
    EXPECT_TRUE(std::isnan(tensors.read().at(z)[0])) << "making a program ran it";
    for (int turn = 0; turn < 3; ++turn) program->run();
    device->synchronize();
    const auto found = tensors.read();
    for (const auto& [id, values] : wanted) EXPECT_EQ(found.at(id), values) << c.graph.at(id).name;
  }
}

TEST(CudaDevice, TransfersKeepTheirOrder) {
  REN_NEED_GPU(device);
  const size_t count = 100000;  // beyond the staging buffers too
  const auto block = device->allocate(count * 4);
  std::vector<int32_t> sent(count), received(count, -1);
  auto* pinned = static_cast<int32_t*>(device->host_allocator().allocate(count * 4));
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t i = 0; i < count; ++i) pinned[i] = sent[i] = int32_t(i) * (turn + 1);
    device->upload(block->base(), pinned, count * 4);
    int32_t few[4];
    const uint64_t first = device->download(few, block->base() + 40, sizeof few);
    const uint64_t second = device->download(received.data(), block->base(), count * 4);
    device->wait(second);
    EXPECT_TRUE(device->ticket_done(first));
    EXPECT_EQ(few[3], sent[13]);
    EXPECT_EQ(received, sent);
  }
  device->host_allocator().release(pinned);
}

// Memsets within a program: each fills its bytes and no others, aligned or not.
TEST(CudaProgram, FillsWhatMemsetsFill) {
  REN_NEED_GPU(device);
  constexpr size_t kBytes = 65536;
  const auto block = device->allocate(kBytes);
  std::vector<unsigned char> content(kBytes, 0xab), wanted = content;
  device->upload(block->base(), content.data(), kBytes);
  device->synchronize();
  auto list = std::make_unique<cuda::LaunchList>(*device);
  for (const auto& [begin, bytes] :
       {std::pair<size_t, size_t>{256, 4096}, {5001, 1003}, {30000, 4}, {40000, 20016}}) {
    list->fill_zero(block->base() + begin, bytes);
    std::fill_n(wanted.begin() + std::ptrdiff_t(begin), bytes, 0);
  }
  std::vector<std::unique_ptr<Kernel>> kernels;
  kernels.push_back(std::move(list));
  device->make_program(std::move(kernels))->run();
  device->wait(device->download(content.data(), block->base(), kBytes));
  EXPECT_EQ(content, wanted);
}

TEST(CudaDevice, RefusesWhatItCannotGive) {
  REN_NEED_GPU(device);
  try {
    device->allocate(uint64_t{1} << 46);
    FAIL() << "it gave 64 TiB";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::out_of_memory) << e.what();
  }
  device->synchronize();  // the refusal is not a failure of the device
  EXPECT_THROW(ren_cuda_backend(module_abi())->open(1000), Error);
}

// Region W, G, M, A with two slots, as the plan lays them out, and all range operations on them.
class Ranges : public testing::Test {
 protected:
  static constexpr int64_t kSizes[3] = {5, 700, 9001};

  void make(Device& gpu, DType copy) {
    device = &gpu;
    uint64_t offset = 0;
    for (int p = 0; p < 3; ++p) {
      const uint64_t half = (uint64_t(kSizes[p]) * 2 + 16 + 255) / 256 * 256;
      segments.push_back(
          {offset, uint64_t(kSizes[p]), p == 1 ? 0.5f : 1.0f, p == 0 ? 0.0f : 1.0f, p == 2 ? 0u : 0u});
      offset += 2 * half;
    }
    bytes = offset;
    spans.resize(kRegions);
    for (const Region r : {Region::W, Region::G, Region::M, Region::A}) {
      blocks.push_back(gpu.allocate(r == Region::A ? bytes / 2 : bytes));
      spans[size_t(r)] = {blocks.back()->base(), blocks.back()->bytes()};
    }
    scalars = gpu.allocate(256 * kScalarCount);
    copy_type = copy;
  }
  std::byte* scalar(Scalar s) { return scalars->base() + 256 * size_t(s); }
  void set(Scalar s, float value) { put(scalar(s), &value, 4); }
  template <typename T>
  T get(Scalar s) {
    T value;
    device->wait(device->download(&value, scalar(s), sizeof value));
    return value;
  }
  void put(std::byte* target, const void* data, size_t count) {
    device->upload(target, data, count);
    device->synchronize();
  }
  std::vector<float> slot(Region r, int p) {
    std::vector<float> values(size_t(kSizes[p]));
    device->wait(device->download(values.data(), spans[size_t(r)].base + segments[size_t(p)].offset,
                                  values.size() * 4));
    return values;
  }
  void set_slot(Region r, int p, const std::vector<float>& values) {
    put(spans[size_t(r)].base + segments[size_t(p)].offset, values.data(), values.size() * 4);
  }
  std::vector<float> copies(int p) {
    std::vector<std::byte> raw(size_t(kSizes[p]) * 2);
    device->wait(device->download(raw.data(), spans[size_t(Region::A)].base + segments[size_t(p)].offset / 2,
                                  raw.size()));
    std::vector<float> values(size_t(kSizes[p]));
    convert(raw, values);
    return values;
  }
  void convert(const std::vector<std::byte>& raw, std::vector<float>& values);
  void run(Op op, AttributesPtr attributes, std::vector<Scalar> inputs) {
    Node node;
    node.op = op;
    node.attributes = std::move(attributes);
    std::vector<std::byte*> pointers;
    for (const Scalar s : inputs) pointers.push_back(scalar(s));
    const OpBackend* kernels = ren_cuda_backend(module_abi())->kernels(op);
    const NodeChoice choice = kernels->prepare({graph, node, *device});
    const auto kernel = kernels->bind({graph, node, choice, *device, pointers, {}, nullptr, spans, segments});
    kernel->launch();
    device->synchronize();
  }

  Device* device = nullptr;
  DType copy_type = DType::f16;
  uint64_t bytes = 0;
  Graph graph;
  std::vector<Segment> segments;
  std::vector<RegionSpan> spans;
  std::vector<std::unique_ptr<DeviceBlock>> blocks;
  std::unique_ptr<DeviceBlock> scalars;
};

std::vector<float> floats(int64_t count, uint64_t seed) {
  const Values values = random_values(count, seed);
  return {values.begin(), values.end()};
}

void Ranges::convert(const std::vector<std::byte>& raw, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, &raw[2 * i], 2);
    values[i] = copy_type == DType::f16 ? from_f16(bits) : from_bf16(bits);
  }
}

TEST_F(Ranges, SgdWithMomentumAndCopies) {
  REN_NEED_GPU(gpu);
  for (const bool nesterov : {false, true}) {
    blocks.clear(), segments.clear();
    make(*gpu, nesterov ? DType::bf16 : DType::f16);
    auto a = std::make_shared<OptimizerAttributes>();
    a->nesterov = nesterov, a->has_copy = true, a->copy_type = copy_type;
    segments[2].flags = kFrozen;
    set(Scalar::learning_rate, 0.1f), set(Scalar::momentum, 0.9f), set(Scalar::weight_decay, 0.01f),
        set(Scalar::overflow, 0);
    std::vector<std::vector<float>> w, g, m;
    for (int p = 0; p < 3; ++p) {
      w.push_back(floats(kSizes[p], 1)), g.push_back(floats(kSizes[p], 2)), m.push_back(floats(kSizes[p], 3));
      set_slot(Region::W, p, w[size_t(p)]), set_slot(Region::G, p, g[size_t(p)]),
          set_slot(Region::M, p, m[size_t(p)]);
    }
    const std::vector<Scalar> inputs{Scalar::learning_rate, Scalar::momentum, Scalar::weight_decay,
                                     Scalar::overflow};
    set(Scalar::overflow, 1);
    run(Op::range_sgd, a, inputs);
    EXPECT_EQ(slot(Region::W, 1), w[1]) << "a step with an overflow must change nothing";
    set(Scalar::overflow, 0);
    run(Op::range_sgd, a, inputs);
    for (int p = 0; p < 2; ++p) {
      const auto found = slot(Region::W, p), moved = slot(Region::M, p), copied = copies(p);
      for (size_t i = 0; i < found.size(); ++i) {
        const Segment& s = segments[size_t(p)];
        const double gradient = g[size_t(p)][i] + 0.01 * s.weight_decay * w[size_t(p)][i];
        const double moment = 0.9 * m[size_t(p)][i] + gradient;
        const double step = nesterov ? gradient + 0.9 * moment : moment;
        // A handful of FP32 roundings on values near 1.
        EXPECT_NEAR(found[i], w[size_t(p)][i] - 0.1 * s.learning_rate * step, 1e-6);
        EXPECT_NEAR(moved[i], moment, 1e-6);
        EXPECT_EQ(copied[i], float(stored(found[i], copy_type)));
      }
    }
    EXPECT_EQ(slot(Region::W, 2), w[2]) << "a frozen segment moved";
  }
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double(v) * double(v);
  return std::sqrt(sum);
}

TEST_F(Ranges, LarsScalesWhatEntersTheMomentum) {
  REN_NEED_GPU(gpu);
  for (const bool momentum : {true, false})
    for (const float size : {1.0f, 1e-25f, 0.0f}) {  // the squares of small gradients must not underflow
      blocks.clear(), segments.clear();
      make(*gpu, DType::f16);
      auto a = std::make_shared<OptimizerAttributes>();
      a->use_momentum = momentum, a->has_copy = true;
      segments[1].flags = segments[2].flags = kLars;
      set(Scalar::learning_rate, 0.1f), set(Scalar::momentum, 0.9f), set(Scalar::weight_decay, 0.01f),
          set(Scalar::overflow, 1), set(Scalar::trust_coefficient, 0.02f);
      std::vector<std::vector<float>> w, g, m;
      for (int p = 0; p < 3; ++p) {
        w.push_back(floats(kSizes[p], 1)), g.push_back(floats(kSizes[p], 2)),
            m.push_back(floats(kSizes[p], 3));
        for (float& v : g.back()) v *= size;
        set_slot(Region::W, p, w[size_t(p)]), set_slot(Region::G, p, g[size_t(p)]),
            set_slot(Region::M, p, m[size_t(p)]);
      }
      const std::vector<Scalar> inputs{Scalar::learning_rate, Scalar::momentum, Scalar::weight_decay,
                                       Scalar::overflow, Scalar::trust_coefficient};
      run(Op::range_lars, a, inputs);
      EXPECT_EQ(slot(Region::W, 2), w[2]) << "a step with an overflow must change nothing";
      set(Scalar::overflow, 0);
      run(Op::range_lars, a, inputs);
      for (int p = 0; p < 3; ++p) {
        const Segment& s = segments[size_t(p)];
        const auto found = slot(Region::W, p), moved = slot(Region::M, p), copied = copies(p);
        const double decay = 0.01 * s.weight_decay, norm_w = norm(w[size_t(p)]), norm_g = norm(g[size_t(p)]);
        const double ratio =
            s.flags != kLars || norm_g == 0 ? 1 : 0.02 * norm_w / (norm_g + decay * norm_w + 1e-9);
        for (size_t i = 0; i < found.size(); ++i) {
          const double gradient = ratio * (g[size_t(p)][i] + decay * w[size_t(p)][i]);
          const double moment = momentum ? 0.9 * m[size_t(p)][i] + gradient : gradient;
          // A handful of FP32 roundings on values near 1; ratios are at most 2.
          EXPECT_NEAR(found[i], w[size_t(p)][i] - 0.1 * s.learning_rate * moment, 1e-6);
          if (momentum) {
            EXPECT_NEAR(moved[i], moment, 1e-6);
          }
          EXPECT_EQ(copied[i], float(stored(found[i], copy_type)));
        }
      }
    }
}

TEST_F(Ranges, MovingAverage) {
  REN_NEED_GPU(gpu);
  make(*gpu, DType::f16);
  spans[size_t(Region::E)] = spans[size_t(Region::M)];
  const auto w = floats(kSizes[2], 1), e = floats(kSizes[2], 2);
  set_slot(Region::W, 2, w), set_slot(Region::E, 2, e);
  set(Scalar::ema_decay, 0.75f), set(Scalar::overflow, 1);
  run(Op::range_ema, std::make_shared<EmaAttributes>(), {Scalar::ema_decay, Scalar::overflow});
  EXPECT_EQ(slot(Region::E, 2), e) << "a step with an overflow must change nothing";
  set(Scalar::overflow, 0);
  run(Op::range_ema, std::make_shared<EmaAttributes>(), {Scalar::ema_decay, Scalar::overflow});
  const auto found = slot(Region::E, 2);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], 0.75 * e[i] + 0.25 * w[i], 2e-7);  // two FP32 roundings of values below 1
}

TEST_F(Ranges, CastClearCopy) {
  REN_NEED_GPU(gpu);
  for (const DType type : {DType::f16, DType::bf16}) {
    blocks.clear(), segments.clear();
    make(*gpu, type);
    std::vector<float> w = floats(kSizes[1], 7);
    w[0] = 1e30f, w[1] = -1e-30f, w[2] = std::numeric_limits<float>::quiet_NaN(), w[3] = 65520.0f;
    set_slot(Region::W, 1, w);
    run(Op::range_cast, std::make_shared<RangeAttributes>(Region::W, Region::A, type), {});
    const auto found = copies(1);
    for (size_t i = 0; i < w.size(); ++i) {
      const auto wanted = float(stored(w[i], type));
      EXPECT_TRUE(found[i] == wanted || (std::isnan(found[i]) && std::isnan(wanted)))
          << w[i] << " became " << found[i];
    }
    run(Op::range_copy, std::make_shared<RangeAttributes>(Region::W, Region::M), {});
    w[2] = 0;
    set_slot(Region::W, 1, w);
    EXPECT_EQ(slot(Region::M, 1)[0], 1e30f);
    run(Op::range_clear, std::make_shared<RangeAttributes>(Region::W, Region::W), {});
    EXPECT_EQ(slot(Region::W, 1), std::vector<float>(size_t(kSizes[1]), 0.0f));
  }
}

TEST_F(Ranges, LossScaleFollowsTheGradients) {
  REN_NEED_GPU(gpu);
  make(*gpu, DType::f16);
  auto rule = std::make_shared<LossScaleAttributes>();
  rule->growth_interval = 2;
  rule->floor = 600;
  const auto check = std::make_shared<RangeAttributes>(Region::G, Region::G);
  const auto step = [&](float poison) {
    for (int p = 0; p < 3; ++p) set_slot(Region::G, p, floats(kSizes[p], 4));
    if (poison != 0) put(spans[size_t(Region::G)].base + segments[2].offset + 4 * 9000, &poison, 4);
    run(Op::range_check_finite, check, {Scalar::loss_scale, Scalar::overflow});
    run(Op::range_update_loss_scale, rule,
        {Scalar::overflow, Scalar::loss_scale, Scalar::growth_tracker, Scalar::skipped_steps,
         Scalar::skipped_in_a_row, Scalar::step});
  };
  set(Scalar::loss_scale, 1024);
  step(0);
  EXPECT_EQ(get<float>(Scalar::overflow), 0.0f);
  EXPECT_FLOAT_EQ(slot(Region::G, 1)[5], floats(kSizes[1], 4)[5] / 1024);
  step(0);
  EXPECT_EQ(get<float>(Scalar::loss_scale), 2048.0f);
  step(std::numeric_limits<float>::infinity());
  EXPECT_EQ(get<float>(Scalar::overflow), 1.0f);
  EXPECT_EQ(get<float>(Scalar::loss_scale), 1024.0f);
  step(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(get<float>(Scalar::loss_scale), 600.0f) << "the floor holds";
  EXPECT_EQ(get<int32_t>(Scalar::skipped_in_a_row), 2);
  step(0);
  EXPECT_EQ(get<int32_t>(Scalar::skipped_in_a_row), 0);
  EXPECT_EQ(get<int32_t>(Scalar::skipped_steps), 2);
  EXPECT_EQ(get<int32_t>(Scalar::step), 5);
  EXPECT_EQ(get<int32_t>(Scalar::growth_tracker), 1);
}

}  // namespace
}  // namespace ren::test
