// SPDX-License-Identifier: Apache-2.0
#include "engine/train/mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "../compile/small_models.h"
#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/compile/compile.h"
#include "engine/ops/load_batch/load_batch.h"
#include "engine/train/trainer.h"
#include "memory_source.h"

namespace ren {
namespace {

bool same(const BatchMix& a, const BatchMix& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// ---- Draws ----------------------------------------------------------------------------------------

// Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2a + 1)), and x^2 (1-x)^2 is at most 1/16. The mean of
// n draws is off by more than 5 of its standard deviations in one of two million runs; so is the mean of (x -
// 1/2)^2, whose variance is at most that of a value in 0..1/4: 1/64.
TEST(MixDraws, HaveBetasMeanAndVariance) {
  constexpr int kDraws = 200000;
  for (const double alpha : {0.001, 0.1, 0.2, 1.0, 2.5, 100.0}) {
    RandomStream random(5, 1, uint64_t(alpha * 1000));
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw_beta(random, alpha);
      ASSERT_TRUE(x >= 0 && x <= 1) << x;
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 5 * std::sqrt(1.0 / 64 / kDraws)) << alpha;
  }
}

// With alpha = 1 lambda is uniform: the largest distance of n draws' distribution from it, times sqrt(n), is
// above 2.7 in one of a million runs (Kolmogorov: 2 exp(-2 * 2.7^2)).
TEST(MixDraws, OfAlphaOneAreUniform) {
  constexpr int kDraws = 100000;
  std::vector<double> draws;
  RandomStream random(9, 1, 0);
  for (int i = 0; i < kDraws; ++i) draws.push_back(draw_beta(random, 1));
  std::sort(draws.begin(), draws.end());
  double distance = 0;
  for (int i = 0; i < kDraws; ++i) {
    distance = std::max(distance, std::abs(draws[size_t(i)] - double(i) / kDraws));
    distance = std::max(distance, std::abs(draws[size_t(i)] - double(i + 1) / kDraws));
  }
  EXPECT_LT(distance * std::sqrt(kDraws), 2.7);
}

TEST(MixDraws, DependOnSeedAndStepAlone) {
  const MixSpec both{0.2, 1.0};
  EXPECT_TRUE(same(draw_mix(both, 3, 17, 32, 24), draw_mix(both, 3, 17, 32, 24)));
  EXPECT_FALSE(same(draw_mix(both, 3, 17, 32, 24), draw_mix(both, 3, 18, 32, 24)));
  EXPECT_FALSE(same(draw_mix(both, 3, 17, 32, 24), draw_mix(both, 4, 17, 32, 24)));
}

// Recorded from draw_mix itself: trainings resume with these, so a change of the draws has to change the
// number of the checkpoints' format.
TEST(MixDraws, StayAsTheyAre) {
  std::string text;
  for (int64_t step = 0; step < 4; ++step) {
    const BatchMix m = draw_mix({0.2, 1.0}, 7, step, 32, 32);
    text += fmt::format("{},{} {},{} {:.5f} {:.5f}\n", m.top, m.left, m.bottom, m.right, m.inside, m.own);
  }
  EXPECT_EQ(text,
            "20,0 32,17 0.00000 0.80078\n"
            "6,0 24,15 0.00000 0.73633\n"
            "0,0 32,32 0.99998 0.99998\n"
            "0,0 27,15 0.00000 0.60449\n");
}

// A half of n steps each, by 5 standard deviations of sqrt(n) / 2.
TEST(MixDraws, ChooseEachOfBothHalfOfTheTime) {
  int cuts = 0;
  constexpr int kSteps = 10000;
  for (int64_t step = 0; step < kSteps; ++step) {
    const BatchMix mix = draw_mix({0.2, 1.0}, 1, step, 16, 16);
    const bool whole = mix.top == 0 && mix.left == 0 && mix.bottom == 16 && mix.right == 16;
    cuts += !(whole && mix.inside == mix.own);
    EXPECT_TRUE(mix.top >= 0 && mix.top <= mix.bottom && mix.bottom <= 16);
    EXPECT_TRUE(mix.left >= 0 && mix.left <= mix.right && mix.right <= 16);
    EXPECT_TRUE(mix.own >= 0 && mix.own <= 1);
  }
  EXPECT_NEAR(cuts, kSteps / 2, 5 * std::sqrt(kSteps) / 2);
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(draw_mix({0.2, 0}, 1, step, 16, 16).bottom, 16);
    EXPECT_EQ(draw_mix({0, 1.0}, 1, step, 16, 16).inside, 0);
  }
}

// The middle of a box is anywhere: each edge is touched now and then, and all of it is 24 x 40.
TEST(MixDraws, BoxesLieEverywhere) {
  std::set<int32_t> tops, rights;
  for (int64_t step = 0; step < 3000; ++step) {
    const BatchMix mix = draw_mix({0, 1.0}, 1, step, 24, 40);
    tops.insert(mix.top);
    rights.insert(mix.right);
  }
  EXPECT_EQ(*tops.begin(), 0);
  EXPECT_GE(*tops.rbegin(), 22);
  EXPECT_EQ(*rights.rbegin(), 40);
  EXPECT_LE(*rights.begin(), 2);
}

// ---- What torchvision and PyTorch make of the same numbers ------------------------------------------

class TorchvisionMix : public testing::TestWithParam<const char*> {
 protected:
  static const SafeTensorsFile& file() {
    static const SafeTensorsFile f = SafeTensorsFile::read(REN_FIXTURES "/mix/torchvision.safetensors");
    return f;
  }
  std::vector<double> numbers(const std::string& name) const {
    return to_doubles(file().at(std::string(GetParam()) + "/" + name));
  }
  BatchMix mix() const {
    const auto& pictures = file().at("pictures").shape;
    const double lambda = numbers("lambda")[0];
    const SafeTensor* middle = file().find(std::string(GetParam()) + "/middle");
    if (middle == nullptr) return mixup(lambda, pictures[1], pictures[2]);
    const auto at = to_int64(*middle);
    return cutmix(lambda, at[0], at[1], pictures[1], pictures[2]);
  }
};

TEST_P(TorchvisionMix, HasTheSameBoxAndShare) {
  const BatchMix m = mix();
  EXPECT_EQ((std::vector<int64_t>{m.top, m.left, m.bottom, m.right}),
            to_int64(file().at(std::string(GetParam()) + "/box")));
  EXPECT_EQ(m.own, float(numbers("own")[0]));
}

Graph small_net() {
  test::ModelBuilder m(5, 8, 3);
  m.graph.at(m.graph.input).shape = {5, 6, 8, 3};
  return m.finish(m.linear(m.global_mean(m.relu(m.conv(m.graph.input, 6, 3, 1, true))), 4));
}

TrainingSpec mixing_spec() {
  TrainingSpec spec;
  for (const double mean : {0.485, 0.456, 0.406}) spec.input.mean.push_back(float(mean * 255));
  for (const double std : {0.229, 0.224, 0.225}) spec.input.scale.push_back(float(1 / (std * 255)));
  spec.loss.label_smoothing = 0.1f;
  spec.mix = {0.2, 1.0};
  return spec;
}

// Bytes and labels in, the loss and every gradient out, on the CPU in FP32.
TEST_P(TorchvisionMix, GivesPyTorchsLossAndGradients) {
  const Graph net = small_net();
  const TrainingSpec spec = mixing_spec();
  std::vector<EngineVariant> variants;
  variants.push_back({"step", Role::step, compile_variant(net, spec, {Role::step, 5})});
  EngineOptions options;
  options.plan.first_moments = true;
  Engine engine(cpu_backend(), 0, std::move(variants), std::move(options));
  const char* const names[] = {"conv.weight", "conv.bias", "fc.weight", "fc.bias"};
  for (int32_t p = 0; p < 4; ++p) {
    const auto values = to_doubles(file().at(names[p]));
    engine.write_parameter(Region::W, p, {values.begin(), values.end()});
  }
  engine.weights_written();

  std::vector<std::byte> record(kStepRecordBytes);
  const float inverse_count = 1.0f / 5;
  const BatchMix m = mix();
  std::memcpy(record.data() + record_offset(Scalar::inverse_count), &inverse_count, 4);
  std::memcpy(record.data() + kMixOffset, &m, sizeof m);
  const auto labels = to_int64(file().at("labels"));
  const std::vector<int32_t> targets(labels.begin(), labels.end());
  engine.upload_batch(0, record.data(), targets.data(), file().at("pictures").data.data());
  engine.run(0);

  for (const Node& node : engine.variants()[0].graph.nodes) {
    if (node.op != Op::cross_entropy) continue;
    const double wanted = numbers("net_loss")[0];
    // FP32 sums of 27 products about 1, of 48 pixels, of 6 products, in a row: sqrt(27 + 48 + 6) * 2^-24.
    EXPECT_NEAR(double(engine.read(0, node.outputs[0])[0]), wanted, 9 * 0x1p-24 * (wanted + 1));
  }
  for (int32_t p = 0; p < 4; ++p) {
    const auto wanted = numbers(std::string("grad/") + names[p]);
    const auto found = engine.read_parameter(Region::G, p);
    double largest = 0;
    for (const double g : wanted) largest = std::max(largest, std::abs(g));
    // As the loss, and sums over 5 * 48 pixels of normalised values up to 2.7: sqrt(240) more.
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(double(found[i]), wanted[i], 2.7 * 16 * 0x1p-24 * (largest + std::abs(wanted[i])))
          << names[p] << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchvisionMix,
                         testing::Values("mixup_most_own", "mixup_most_other", "mixup_other_alone",
                                         "mixup_own_alone", "cutmix_inside", "cutmix_top_left",
                                         "cutmix_bottom_right", "cutmix_left", "cutmix_nothing",
                                         "cutmix_everything"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Trainers ---------------------------------------------------------------------------------------

ModelState small_model(int64_t size = 6) {
  ModelState state;
  test::ModelBuilder m(4, size, 3);
  state.graph = m.finish(m.linear(m.relu(m.batch_norm(m.conv(m.graph.input, 8, 3, 1))), 4));
  RandomStream random(2, 1, 0);
  for (const Parameter& p : state.graph.parameters) {
    std::vector<float> values(size_t(p.shape.elements()), p.kind == ParameterKind::norm_scale ? 1.0f : 0.0f);
    const float limit = 1.0f / std::sqrt(float(p.shape.h * p.shape.w * p.shape.c));
    if (p.kind == ParameterKind::weight)
      for (float& v : values) v = random.uniform(-limit, limit);
    state.parameters.push_back(std::move(values));
  }
  state.buffers = {std::vector<float>(8, 0.0f), std::vector<float>(8, 1.0f)};
  return state;
}

TrainerOptions options(MixSpec mix, Precision precision = Precision::fp32) {
  TrainerOptions o;
  o.spec.precision = precision;
  o.spec.input.image_type = DType::f32;
  o.spec.mix = mix;
  o.spec.loss.label_smoothing = 0.1f;
  o.batch = 8;
  o.other_batches = {4, 1};
  o.learning_rate = 0.05;
  o.epochs = 3;
  o.seed = 4;
  return o;
}

std::vector<std::vector<float>> weights(const Trainer& trainer) {
  std::vector<std::vector<float>> out;
  for (size_t p = 0; p < trainer.graph().parameters.size(); ++p) out.push_back(trainer.parameter(int32_t(p)));
  return out;
}

struct Drawn {
  std::vector<float> images;
  std::vector<int32_t> labels;
  explicit Drawn(int64_t count, uint64_t seed = 1) {
    RandomStream random(seed, 1, 0);
    for (int64_t i = 0; i < count * 6 * 6 * 3; ++i) images.push_back(random.uniform(-1, 1));
    for (int64_t i = 0; i < count; ++i) labels.push_back(int32_t(random.below(4)));
  }
};

// The mixture by hand, of the step that the trainer is at, given to a trainer that doesn't mix: MixUp of
// images and the mean of both losses.
TEST(MixTraining, AStepIsTheStepOnMixedPictures) {
  const MixSpec spec{0.5, 0};
  Trainer mixing(small_model(), options(spec)), plain(small_model(), options({}));
  const Drawn batch(8);
  for (int step = 0; step < 3; ++step) {
    const BatchMix mix = draw_mix(spec, 4, step, 6, 6);
    std::vector<float> images = batch.images;
    std::vector<int32_t> partners(8);
    for (size_t n = 0; n < 8; ++n) {
      partners[n] = batch.labels[(n + 7) % 8];
      for (size_t i = 0; i < 108; ++i)
        images[n * 108 + i] = batch.images[n * 108 + i] * mix.inside +
                              batch.images[(n + 7) % 8 * 108 + i] * (1.0f - mix.inside);
    }
    // A rate of 0: both keep their weights; running statistics play no part in training.
    const StepResult mixed = mixing.step(batch.images.data(), batch.labels.data(), 8, 0),
                     own = plain.step(images.data(), batch.labels.data(), 8, 0),
                     other = plain.step(images.data(), partners.data(), 8, 0);
    const double wanted = double(mix.own) * own.loss + (1 - double(mix.own)) * other.loss;
    // The same pictures but for a contracted multiplication; losses come as FP32.
    EXPECT_NEAR(mixed.loss, wanted, 8 * 0x1p-24 * (1 + wanted));
    EXPECT_EQ(mixed.samples, 8);
    EXPECT_EQ(mixed.correct, mix.own >= 0.5f ? own.correct : other.correct);
    EXPECT_EQ(mixed.correct5, 8);  // of four classes
  }
}

TEST(MixTraining, ABatchOfOneIsItsOwnPartner) {
  Trainer mixing(small_model(), options({1.0, 1.0})), plain(small_model(), options({}));
  const Drawn batch(1);
  for (int step = 0; step < 4; ++step) {
    const double mixed = mixing.step(batch.images.data(), batch.labels.data(), 1, 0).loss,
                 alone = plain.step(batch.images.data(), batch.labels.data(), 1, 0).loss;
    EXPECT_NEAR(mixed, alone, 4 * 0x1p-24 * (1 + alone));  // share * x + (1 - share) * x rounds
  }
}

TEST(MixTraining, EvaluationNeverMixes) {
  Trainer mixing(small_model(), options({1.0, 1.0})), plain(small_model(), options({}));
  const Drawn batch(8);
  const StepResult a = mixing.evaluate_batch(batch.images.data(), batch.labels.data(), 8),
                   b = plain.evaluate_batch(batch.images.data(), batch.labels.data(), 8);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.correct, b.correct);
  EXPECT_EQ(mixing.predict(batch.images.data(), 8), plain.predict(batch.images.data(), 8));
}

TEST(MixTraining, Learns) {
  for (const MixSpec& mix : {MixSpec{0.2, 0}, MixSpec{0, 1.0}, MixSpec{0.2, 1.0}})
    for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
      TrainerOptions o = options(mix, precision);
      o.epochs = 15;
      Trainer trainer(small_model(), o);
      test::MemorySource training(100, 8, 6, 3), validation(60, 8, 6, 3, false);
      FitOptions fit;
      fit.training = &training;
      fit.validation = &validation;
      double first = 0;
      fit.observer = [&](const FitProgress& p) {
        if (p.phase == FitPhase::epoch_done && p.epoch == 0) first = p.training.loss;
        return true;
      };
      const FitProgress end = trainer.fit(fit);
      EXPECT_LT(end.training.loss, 0.9 * first) << mix.mixup << " " << mix.cutmix << name_of(precision);
      EXPECT_GT(end.validation.top1, 0.8) << mix.mixup << " " << mix.cutmix << name_of(precision);
    }
}

TEST(MixTraining, ResumesBitForBitFromTheMiddleOfAnEpoch) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("ren_mix_{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "mid.safetensors").string();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const MixSpec mix{0.2, 1.0};
    test::MemorySource training(100, 8, 6, 3);
    FitOptions fit;
    fit.training = &training;
    Trainer whole(small_model(), options(mix, precision));
    whole.fit(fit);
    fit.checkpoint_path = path;
    fit.checkpoint_every_steps = 5;
    int64_t seen = 0;
    fit.observer = [&](const FitProgress& p) {
      return p.phase != FitPhase::checkpoint_written || ++seen < 4;
    };
    Trainer first(small_model(), options(mix, precision));
    EXPECT_THROW(first.fit(fit), Error);
    Trainer second(small_model(), options(mix, precision));
    second.load_checkpoint(path);
    fit.observer = {};
    fit.checkpoint_path.clear();
    second.fit(fit);
    EXPECT_EQ(weights(whole), weights(second)) << name_of(precision);
    Trainer other(small_model(), options({}, precision));
    EXPECT_THROW(other.load_checkpoint(path), Error);
  }
  std::filesystem::remove_all(folder);
}

std::string refusal(const ModelState& model, const TrainerOptions& o) {
  try {
    const Trainer trainer(model, o);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(MixTraining, RefusesWhatCannotBeMixed) {
  for (const double alpha : {-1.0, 1e-9, 1e9, double(NAN), double(INFINITY)}) {
    EXPECT_NE(refusal(small_model(), options({alpha, 0})).find("MixUp's alpha"), std::string::npos) << alpha;
    EXPECT_NE(refusal(small_model(), options({0, alpha})).find("CutMix's alpha"), std::string::npos) << alpha;
  }
  const auto model_of = [](const std::function<TensorId(test::ModelBuilder&)>& output) {
    ModelState state;
    test::ModelBuilder m(4, 6, 3);
    state.graph = m.finish(output(m));
    for (const Parameter& p : state.graph.parameters)
      state.parameters.emplace_back(size_t(p.shape.elements()), 0.1f);
    return state;
  };
  const ModelState dense = model_of([](auto& m) { return m.conv(m.graph.input, 4, 3, 1); });
  EXPECT_NE(refusal(dense, options({0.2, 0})).find("'logits' has 6 x 6 positions and 4 scores"),
            std::string::npos);
  EXPECT_EQ(refusal(dense, options({})), "");
  const ModelState single = model_of([](auto& m) { return m.linear(m.graph.input, 1); });
  EXPECT_NE(refusal(single, options({0, 1})).find("1 score"), std::string::npos);
}

}  // namespace
}  // namespace ren
