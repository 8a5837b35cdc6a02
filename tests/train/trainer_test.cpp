// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../compile/small_models.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "memory_source.h"

namespace ren {
namespace {

namespace fs = std::filesystem;

ModelState small_model() {
  ModelState state;
  state.graph = test::residual_model(2);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const Parameter& p : state.graph.parameters) {
    std::vector<float> v(size_t(p.shape.elements()));
    const float scale = 1.0f / std::sqrt(float(p.shape.h * p.shape.w * p.shape.c));
    for (float& x : v)
      x = p.kind == ParameterKind::norm_scale ? 1.0f
          : p.kind == ParameterKind::weight   ? scale * normal(random)
                                              : 0.0f;
    state.parameters.push_back(std::move(v));
  }
  for (size_t b = 0; b < state.graph.buffers.size(); ++b)
    state.buffers.emplace_back(size_t(state.graph.at(state.graph.buffers[b].value).shape.c),
                               b % 2 == 1 ? 1.0f : 0.0f);
  return state;
}

TrainerOptions options(Precision precision = Precision::fp32) {
  TrainerOptions o;
  o.spec.precision = precision;
  o.spec.input.image_type = DType::f32;
  o.spec.optimizer.nesterov = true;
  o.batch = 8;
  o.other_batches = {4};
  o.learning_rate = 0.05;
  o.schedule = ScheduleKind::cosine;
  o.warmup_epochs = 0.5;
  o.epochs = 3;
  o.seed = 4;
  return o;
}

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("ren_trainer_{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

std::vector<std::vector<float>> weights(const Trainer& trainer) {
  std::vector<std::vector<float>> out;
  for (size_t p = 0; p < trainer.graph().parameters.size(); ++p) out.push_back(trainer.parameter(int32_t(p)));
  for (size_t b = 0; b < trainer.graph().buffers.size(); ++b) out.push_back(trainer.buffer(int32_t(b)));
  return out;
}

TEST_F(TrainerTest, LearnsAndEvaluates) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    TrainerOptions o = options(precision);
    o.epochs = 20;
    Trainer trainer(small_model(), o);
    test::MemorySource training(100, 8, 6, 3), validation(60, 8, 6, 3, false);
    FitOptions fit;
    fit.training = &training;
    fit.validation = &validation;
    const FitProgress end = trainer.fit(fit);
    EXPECT_GT(end.training.top1, 0.9) << name_of(precision);
    EXPECT_EQ(end.training.samples, 100);
    EXPECT_EQ(end.validation.samples, 60);  // 7.5 batches: the last one is padded, not counted
    EXPECT_GT(end.validation.top1, 0.8) << name_of(precision);
    EXPECT_GE(end.validation.top5, end.validation.top1);
  }
}

TEST_F(TrainerTest, ResumesBitForBitFromTheMiddleOfAnEpoch) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    test::MemorySource training(100, 8, 6, 3);
    FitOptions fit;
    fit.training = &training;
    Trainer whole(small_model(), options(precision));
    whole.fit(fit);

    fit.checkpoint_path = path("mid.safetensors");
    fit.checkpoint_every_steps = 5;
    int64_t seen = 0;
    fit.observer = [&](const FitProgress& p) {
      return p.phase != FitPhase::checkpoint_written || ++seen < 4;
    };
    Trainer first(small_model(), options(precision));
    EXPECT_THROW(first.fit(fit), Error);
    Trainer second(small_model(), options(precision));
    second.load_checkpoint(fit.checkpoint_path);
    EXPECT_GT(second.steps_done(), 0);
    fit.observer = {};
    fit.checkpoint_path.clear();
    second.fit(fit);
    EXPECT_EQ(weights(whole), weights(second)) << name_of(precision);
  }
}

TEST_F(TrainerTest, RefusesACheckpointOfAnotherTraining) {
  Trainer a(small_model(), options());
  a.save_checkpoint(path("a"));
  TrainerOptions other = options();
  other.learning_rate = 0.01;
  other.seed = 9;
  Trainer b(small_model(), other);
  try {
    b.load_checkpoint(path("a"));
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("learning_rate"), std::string::npos) << text;
    EXPECT_NE(text.find("seed"), std::string::npos) << text;
  }
  write_file(path("junk"), "not a checkpoint");
  EXPECT_THROW(b.load_checkpoint(path("junk")), Error);
  EXPECT_THROW(b.load_checkpoint(path("missing")), Error);
}

TEST_F(TrainerTest, RefusesLabelsAndBatchesThatDoNotFit) {
  Trainer trainer(small_model(), options());
  std::vector<float> images(8 * 6 * 6 * 3, 0.1f);
  std::vector<int32_t> labels(8, 0);
  labels[3] = 4;
  EXPECT_THROW(trainer.step(images.data(), labels.data(), 8, 0.1), Error);
  labels[3] = -1;
  EXPECT_THROW(trainer.step(images.data(), labels.data(), 8, 0.1), Error);
  labels[3] = 3;
  EXPECT_THROW(trainer.step(images.data(), labels.data(), 7, 0.1), Error);
  EXPECT_NO_THROW(trainer.step(images.data(), labels.data(), 8, 0.1));
  test::MemorySource wrong(100, 8, 5, 3);
  FitOptions fit;
  fit.training = &wrong;
  EXPECT_THROW(trainer.fit(fit), Error);
}

TEST_F(TrainerTest, DivergenceEndsTraining) {
  TrainerOptions o = options();
  o.learning_rate = 1e30;
  o.warmup_epochs = 0;
  Trainer trainer(small_model(), o);
  test::MemorySource training(100, 8, 6, 3);
  FitOptions fit;
  fit.training = &training;
  try {
    trainer.fit(fit);
    FAIL() << "a diverged training went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::numerical);
  }
}

TEST_F(TrainerTest, OverflowSkipsTheStepAndLowersTheScale) {
  TrainerOptions o = options(Precision::fp16);
  o.spec.loss_scale.initial = 1e30f;  // overflows FP16 gradients until it has come down
  o.max_skipped_in_a_row = 200;
  Trainer trainer(small_model(), o);
  std::vector<float> images(8 * 6 * 6 * 3);
  for (size_t i = 0; i < images.size(); ++i) images[i] = float(i % 7) - 3;
  std::vector<int32_t> labels = {0, 1, 2, 3, 0, 1, 2, 3};
  const auto before = trainer.parameter(0);
  EXPECT_TRUE(trainer.step(images.data(), labels.data(), 8, 0.1).skipped);
  EXPECT_EQ(before, trainer.parameter(0));
  int steps = 1;
  while (trainer.step(images.data(), labels.data(), 8, 0.1).skipped && steps < 200) ++steps;
  EXPECT_LT(steps, 200);
  EXPECT_NE(before, trainer.parameter(0));
  EXPECT_EQ(trainer.engine().read_scalar(Scalar::skipped_in_a_row), 0);
  EXPECT_EQ(trainer.engine().read_scalar(Scalar::skipped_steps), steps);
  EXPECT_EQ(trainer.engine().read_scalar(Scalar::loss_scale), double(1e30f) * std::pow(0.5, steps));
}

// An overflow in the forward pass must not stay in the running statistics after its step was skipped.
TEST_F(TrainerTest, ASkippedStepLeavesFiniteStatistics) {
  Trainer trainer(small_model(), options(Precision::fp16));
  std::vector<float> images(8 * 6 * 6 * 3, 1e6f);
  for (size_t i = 0; i < images.size(); i += 3) images[i] = -1e6f;
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0, 1, 2, 3};
  EXPECT_TRUE(trainer.step(images.data(), labels.data(), 8, 0.1).skipped);
  for (size_t b = 0; b < trainer.graph().buffers.size(); ++b)
    for (const float v : trainer.buffer(int32_t(b)))
      EXPECT_TRUE(std::isfinite(v)) << trainer.graph().buffers[b].name;
}

TEST_F(TrainerTest, TooManySkippedStepsEndTraining) {
  TrainerOptions o = options(Precision::fp16);
  o.spec.loss_scale.initial = 1e30f;
  o.max_skipped_in_a_row = 10;
  Trainer trainer(small_model(), o);
  test::MemorySource training(200, 8, 6, 3);
  FitOptions fit;
  fit.training = &training;
  try {
    trainer.fit(fit);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::numerical);
    EXPECT_NE(std::string(e.what()).find("in a row"), std::string::npos);
  }
}

TEST_F(TrainerTest, MemoryLimitIsRefusedWithTheConsumers) {
  TrainerOptions o = options();
  o.memory_limit = 100000;
  try {
    Trainer trainer(small_model(), o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::out_of_memory);
  }
}

TEST(Schedule, FollowsItsFormula) {
  Schedule s;
  s.kind = ScheduleKind::cosine;
  s.learning_rate = 0.1;
  s.warmup_steps = 10;
  s.total_steps = 110;
  EXPECT_DOUBLE_EQ(s.at(0), 0.01);
  EXPECT_DOUBLE_EQ(s.at(9), 0.1);
  EXPECT_DOUBLE_EQ(s.at(10), 0.1);
  EXPECT_NEAR(s.at(60), 0.05, 1e-15);  // exact but for the cosine's rounding
  EXPECT_NEAR(s.at(109), 0.05 * (1 + std::cos(M_PI * 0.99)), 1e-15);
  s.kind = ScheduleKind::step;
  s.step_size = 30;
  EXPECT_DOUBLE_EQ(s.at(39), 0.1);
  EXPECT_DOUBLE_EQ(s.at(40), 0.1 * 0.1);
}

}  // namespace
}  // namespace ren
