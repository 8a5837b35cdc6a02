// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "../compile/small_models.h"
#include "engine/base/file.h"
#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/train/facts.h"
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

// The error of loading a checkpoint, or "" when it is taken.
std::string refusal(Trainer& trainer, const std::string& path, const BatchSource* data = nullptr) {
  try {
    trainer.load_checkpoint(path, data);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

TEST_F(TrainerTest, ACheckpointIsRefusedForEachOptionThatDiffers) {
  const auto base = [] {
    TrainerOptions o = options(Precision::fp16);
    o.spec.input.mean = {0.5f, 0.25f, 0.125f};
    o.spec.input.scale = {4.0f, 4.0f, 4.0f};
    o.spec.optimizer.ema = true;
    return o;
  };
  Trainer a(small_model(), base());
  a.save_checkpoint(path("a"));
  using Change = std::function<void(TrainerOptions&)>;
  const std::pair<const char*, Change> changes[] = {
      {"precision: is bf16 now, the checkpoint has fp16",
       [](TrainerOptions& o) { o.spec.precision = Precision::bf16; }},
      {"batch: is 4 now, the checkpoint has 8", [](TrainerOptions& o) { o.batch = 4; }},
      {"image_type: is u8 now, the checkpoint has f32",  // the same normalisation, in other units
       [](TrainerOptions& o) {
         o.spec.input.image_type = DType::u8;
         for (float& m : o.spec.input.mean) m *= 255.0f;
         for (float& s : o.spec.input.scale) s /= 255.0f;
       }},
      {"mean: is 0.5,0.25,0.5 now, the checkpoint has 0.5,0.25,0.125",
       [](TrainerOptions& o) { o.spec.input.mean[2] = 0.5f; }},
      {"std: is 0.25,0.5,0.25 now, the checkpoint has 0.25,0.25,0.25",
       [](TrainerOptions& o) { o.spec.input.scale[1] = 2.0f; }},
      {"losses:",
       [](TrainerOptions& o) {
         o.spec.loss.outputs = {{"logits", 0.5f}};
       }},
      {"label_smoothing: is 0.5 now, the checkpoint has 0",
       [](TrainerOptions& o) { o.spec.loss.label_smoothing = 0.5f; }},
      {"ignore_index: is 3 now", [](TrainerOptions& o) { o.spec.loss.ignore_index = 3; }},
      {"mixup: is 0.2 now, the checkpoint has none", [](TrainerOptions& o) { o.spec.mix.mixup = 0.2; }},
      {"cutmix: is 1 now, the checkpoint has none", [](TrainerOptions& o) { o.spec.mix.cutmix = 1; }},
      {"optimizer: is lars now, the checkpoint has sgd",
       [](TrainerOptions& o) { o.spec.optimizer.kind = OptimizerKind::lars; }},
      {"nesterov: is no now, the checkpoint has yes",
       [](TrainerOptions& o) { o.spec.optimizer.nesterov = false; }},
      {"learning_rate: is 0.01 now, the checkpoint has 0.05",
       [](TrainerOptions& o) { o.learning_rate = 0.01; }},
      {"momentum: is 0.8 now", [](TrainerOptions& o) { o.momentum = 0.8; }},
      {"weight_decay: is 0.1 now", [](TrainerOptions& o) { o.weight_decay = 0.1; }},
      {"trust_coefficient: is 0.1 now", [](TrainerOptions& o) { o.trust_coefficient = 0.1; }},
      {"schedule: is step now, the checkpoint has cosine",
       [](TrainerOptions& o) { o.schedule = ScheduleKind::step; }},
      {"warmup_epochs: is 1 now", [](TrainerOptions& o) { o.warmup_epochs = 1; }},
      {"final_learning_rate: is 0.001 now", [](TrainerOptions& o) { o.final_rate = 0.001; }},
      {"step_epochs: is 2 now", [](TrainerOptions& o) { o.step_epochs = 2; }},
      {"gamma: is 0.5 now", [](TrainerOptions& o) { o.gamma = 0.5; }},
      {"epochs: is 4 now, the checkpoint has 3", [](TrainerOptions& o) { o.epochs = 4; }},
      {"seed: is 9 now, the checkpoint has 4", [](TrainerOptions& o) { o.seed = 9; }},
      {"ema_decay: is none now, the checkpoint has 0.999",
       [](TrainerOptions& o) { o.spec.optimizer.ema = false; }},
      {"ema_decay: is 0.9 now, the checkpoint has 0.999", [](TrainerOptions& o) { o.ema_decay = 0.9; }},
      {"loss_scale: is 4 (times 2 each 2000 steps",
       [](TrainerOptions& o) { o.spec.loss_scale.initial = 4; }}};
  for (const auto& [text, change] : changes) {
    TrainerOptions o = base();
    change(o);
    Trainer b(small_model(), o);
    const std::string refused = refusal(b, path("a"));
    EXPECT_NE(refused.find(text), std::string::npos) << text << "\n" << refused;
    EXPECT_EQ(std::count(refused.begin(), refused.end(), '\n'), 1) << refused;  // nothing else differs
  }
  // All at once, and what may change.
  TrainerOptions o = base();
  o.learning_rate = 0.01;
  o.seed = 9;
  o.evaluation_batch = 5;
  o.other_batches = {3};
  o.max_skipped_in_a_row = 7;
  Trainer b(small_model(), o);
  const std::string refused = refusal(b, path("a"));
  EXPECT_NE(refused.find("learning_rate"), std::string::npos);
  EXPECT_NE(refused.find("seed"), std::string::npos);
  EXPECT_EQ(std::count(refused.begin(), refused.end(), '\n'), 2) << refused;
  o.learning_rate = base().learning_rate;
  o.seed = base().seed;
  Trainer c(small_model(), o);
  EXPECT_EQ(refusal(c, path("a")), "");
}

TEST_F(TrainerTest, ACheckpointIsRefusedForAnotherModel) {
  Trainer a(small_model(), options());
  a.save_checkpoint(path("a"));
  const auto refused_for = [&](const std::function<void(Graph&)>& change) {
    ModelState model = small_model();
    change(model.graph);
    Trainer b(std::move(model), options());
    return refusal(b, path("a"));
  };
  EXPECT_EQ(refused_for([](Graph&) {}), "");
  EXPECT_EQ(refused_for([](Graph& g) { g.nodes[0].name = "another name"; }), "");
  std::string text = refused_for([](Graph& g) {
    for (Node& node : g.nodes) {
      if (node.op != Op::batch_norm) continue;
      auto attributes = std::make_shared<BatchNormAttributes>(node.as<BatchNormAttributes>());
      attributes->keep = 0.5f;
      node.attributes = attributes;
      node.name = "the norm";
      break;
    }
  });
  EXPECT_NE(text.find("node 'the norm'"), std::string::npos) << text;
  EXPECT_NE(text.find("keep=0.5"), std::string::npos) << text;
  EXPECT_NE(text.find("keep=0.9"), std::string::npos) << text;
  text = refused_for([](Graph& g) { g.parameters[1].trainable = false; });
  EXPECT_NE(text.find("frozen now, trained"), std::string::npos) << text;
  EXPECT_NE(text.find(small_model().graph.parameters[1].name), std::string::npos) << text;
  text = refused_for([](Graph& g) {
    for (Parameter& p : g.parameters) p.weight_decay_multiplier = 0.0f;
  });
  EXPECT_NE(text.find("weight decay times 0"), std::string::npos) << text;
  EXPECT_NE(text.find("more"), std::string::npos) << text;  // not a line for each
}

TEST_F(TrainerTest, ACheckpointIsRefusedForOtherData) {
  test::MemorySource training(100, 8, 6, 3), other(100, 8, 6, 3);
  training.identity_ = {{"kind", "memory"}, {"seed", "1"}, {"names", "5 (abc)"}};
  other.identity_ = {{"kind", "memory"}, {"seed", "2"}, {"names", "5 (def)"}, {"checksums", "1"}};
  FitOptions fit;
  fit.training = &training;
  fit.checkpoint_path = path("a");
  Trainer a(small_model(), options());
  a.fit(fit);
  Trainer b(small_model(), options());
  const std::string text = refusal(b, path("a"), &other);
  EXPECT_NE(text.find("data: seed: is 2 now, the checkpoint has 1"), std::string::npos) << text;
  EXPECT_NE(text.find("data: names: is 5 (def) now, the checkpoint has 5 (abc)"), std::string::npos) << text;
  EXPECT_EQ(text.find("checksums"), std::string::npos) << text;
  EXPECT_EQ(b.steps_done(), 0);
  EXPECT_EQ(refusal(b, path("a"), &training), "");
  fit.training = &other;
  EXPECT_THROW(b.fit(fit), Error);  // where the data was not known before
}

TEST_F(TrainerTest, DamagedAndForeignCheckpointsAreRefused) {
  Trainer a(small_model(), options());
  a.save_checkpoint(path("a"));
  const std::string good = read_file(path("a"));
  Trainer b(small_model(), options());
  const auto before = weights(b);
  // A bit here and there; base/ tries each one of a small file.
  for (size_t bit = 0; bit < good.size() * 8; bit += 1009) {
    std::string bad = good;
    bad[bit / 8] = char(bad[bit / 8] ^ (1 << bit % 8));
    write_file(path("bad"), bad);
    const std::string text = refusal(b, path("bad"));
    EXPECT_NE(text.find(path("bad")), std::string::npos) << bit << ": " << text;
  }
  for (const size_t cut : {size_t{0}, size_t{7}, size_t{100}, good.size() - 1}) {
    write_file(path("bad"), good.substr(0, cut));
    EXPECT_NE(refusal(b, path("bad")), "") << cut;
  }
  write_file(path("bad"), good + "x");
  EXPECT_NE(refusal(b, path("bad")), "");
  write_file(path("bad"), "not a checkpoint");
  EXPECT_NE(refusal(b, path("bad")), "");
  EXPECT_NE(refusal(b, path("missing")), "");
  write_safetensors(path("bad"), {}, {{"format", "renaissance-checkpoint-1"}});
  EXPECT_NE(refusal(b, path("bad")).find("format 1"), std::string::npos);
  write_safetensors(path("bad"), {}, {{"format", "renaissance-golden-1"}});
  EXPECT_NE(refusal(b, path("bad")).find("no checkpoint"), std::string::npos);
  EXPECT_EQ(weights(b), before);
  EXPECT_EQ(refusal(b, path("a")), "");
}

TEST_F(TrainerTest, ACheckpointThatCannotBeWrittenDoesNotEndTraining) {
  test::MemorySource training(100, 8, 6, 3);
  FitOptions fit;
  fit.training = &training;
  Trainer whole(small_model(), options());
  whole.fit(fit);

  fs::create_directory(path("place"));
  fit.checkpoint_path = path("place/c");
  fit.checkpoint_every_steps = 5;
  int64_t written = 0, failed = 0;
  fit.observer = [&](const FitProgress& p) {
    written += p.phase == FitPhase::checkpoint_written;
    if (p.phase == FitPhase::checkpoint_written) fs::remove_all(path("place"));
    if (p.phase == FitPhase::checkpoint_failed) {
      EXPECT_EQ(p.failed_checkpoints, ++failed);
      EXPECT_NE(p.message.find(path("place/c")), std::string::npos) << p.message;
      if (failed == 2) fs::create_directory(path("place"));  // it comes back
    }
    return true;
  };
  Trainer trainer(small_model(), options());
  const FitProgress end = trainer.fit(fit);
  EXPECT_EQ(end.failed_checkpoints, failed);
  EXPECT_GE(failed, 3);
  EXPECT_EQ(written, 2);
  EXPECT_EQ(weights(whole), weights(trainer));

  // A stop that can't keep its state says so.
  fs::create_directories(path("place"));
  fit.observer = [&](const FitProgress& p) {
    fs::remove_all(path("place"));
    return p.step < 3;
  };
  fit.checkpoint_every_steps = 0;
  Trainer stopped(small_model(), options());
  try {
    stopped.fit(fit);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::io);
    EXPECT_NE(std::string(e.what()).find("not written"), std::string::npos) << e.what();
  }
  // A place that is wrong from the beginning is told before the first step.
  fit.observer = {};
  Trainer early(small_model(), options());
  EXPECT_THROW(early.fit(fit), Error);
  EXPECT_EQ(early.steps_done(), 0);
}

TEST_F(TrainerTest, AnOutputThatIsNotFiniteNamesItsSample) {
  Trainer trainer(small_model(), options());
  test::MemorySource data(60, 8, 6, 3, false);
  EXPECT_NO_THROW(trainer.evaluate(data));
  data.set_pixel(37, std::numeric_limits<float>::infinity());
  data.set_pixel(45, std::numeric_limits<float>::infinity());
  try {
    trainer.evaluate(data);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::numerical);
    EXPECT_NE(std::string(e.what()).find("'sample 37'"), std::string::npos) << e.what();
  }
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

void expect_says(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string refusal_to_train(Trainer& trainer, int64_t labels_per_sample, size_t classes) {
  test::MemorySource source(64, 8, 6, 3);
  source.describe(labels_per_sample, std::vector<std::string>(classes, "name"));
  FitOptions fit;
  fit.training = &source;
  try {
    trainer.fit(fit);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::invalid_argument);
    EXPECT_EQ(trainer.steps_done(), 0);
    return e.what();
  }
}

TEST_F(TrainerTest, RefusesDataWithOtherLabelsThanItsOutputsTake) {
  Trainer trainer(small_model(), options());
  expect_says(refusal_to_train(trainer, 36, 0), "gives 36 labels a picture");
  expect_says(refusal_to_train(trainer, 1, 5), "has 5 classes, the model's output");
  // Of several outputs with a loss each one counts, not the first alone.
  ModelState two = small_model();
  const TensorId logits = two.graph.outputs.at(0).value;
  const auto gemm = std::find_if(two.graph.nodes.begin(), two.graph.nodes.end(), [&](const Node& node) {
    return std::find(node.outputs.begin(), node.outputs.end(), logits) != node.outputs.end();
  });
  ASSERT_NE(gemm, two.graph.nodes.end());
  two.graph.outputs.push_back({"pooled", gemm->inputs[0]});
  const int64_t pooled = two.graph.at(gemm->inputs[0]).shape.c;
  ASSERT_GT(pooled, two.graph.at(logits).shape.c);
  TrainerOptions o = options();
  o.spec.loss.outputs = {{"pooled", 1.0f}, {two.graph.outputs[0].name, 1.0f}};
  Trainer both(two, o);
  expect_says(refusal_to_train(both, 1, size_t(pooled)), "the model's output 'logits' has 4");
  std::vector<float> images(8 * 6 * 6 * 3, 0.1f);
  EXPECT_THROW(both.step(images.data(), std::vector<int32_t>(8, 4).data(), 8, 0.1), Error);
  EXPECT_NO_THROW(both.step(images.data(), std::vector<int32_t>(8, 3).data(), 8, 0.1));
}

// What was trained is not thrown away because it is no good in evaluation: running statistics may yet settle.
TEST_F(TrainerTest, AValidationLossThatIsNotFiniteIsAResult) {
  Trainer trainer(small_model(), options());
  const size_t channels = trainer.buffer(0).size();
  trainer.set_buffer(0, std::vector<float>(channels, -3e38f));  // a running mean
  test::MemorySource training(16, 8, 6, 3), validation(8, 8, 6, 3, false);
  FitOptions fit;
  fit.training = &training;
  fit.validation = &validation;
  const FitProgress end = trainer.fit(fit);
  EXPECT_FALSE(std::isfinite(end.validation.loss)) << end.validation.loss;
  EXPECT_TRUE(std::isfinite(end.training.loss));
  EXPECT_EQ(trainer.epoch(), 3);
}

TEST_F(TrainerTest, Tf32IsRefusedOnTheCpu) {
  try {
    Trainer trainer(small_model(), options(Precision::tf32));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::unsupported);
    expect_says(e.what(), "TF32");
  }
}

// What another version's checkpoint asks for, and this one knows nothing of, must not be left out in silence.
TEST(Facts, UnknownOptionsAreRefused) {
  Problems problems;
  compare_options({{"batch", "8"}}, {{"batch", "8"}, {"sharpness", "2"}}, problems);
  try {
    problems.throw_if_any(StatusCode::invalid_data, "options");
    FAIL() << "accepted";
  } catch (const Error& e) {
    expect_says(e.what(), "sharpness: is 2 in the checkpoint, and not known here");
  }
}

// An epoch whose last batch has no program is refused before its first step.
TEST_F(TrainerTest, ALastBatchWithoutAProgramIsRefusedFirst) {
  TrainerOptions o = options();
  o.other_batches = {3};
  Trainer trainer(small_model(), o);
  test::MemorySource source(2 * o.batch + 5, o.batch, 6, 3);
  FitOptions fit;
  fit.training = &source;
  try {
    trainer.fit(fit);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("ends with a batch of 5"), std::string::npos) << e.what();
  }
  EXPECT_EQ(trainer.steps_done(), 0);
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
