// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix through the C API: pushed batches, streams from callbacks, loaders of pictures.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "support.h"

namespace ren::test {
namespace {

ren_trainer_options mixing(double mixup, double cutmix) {
  ren_trainer_options options = small_options();
  options.label_smoothing = 0.1f;
  options.mixup_alpha = mixup;
  options.cutmix_alpha = cutmix;
  options.seed = 3;
  return options;
}

// Losses of some steps on one pushed batch with a rate of 0, so that they differ by their mixtures alone.
std::vector<double> losses(const ModelPtr& model, const ren_trainer_options& options, int steps = 6) {
  const TrainerPtr trainer = make_trainer(model, options);
  const Pushed pushed(info_of(model), 4);
  std::vector<double> out;
  for (int i = 0; i < steps; ++i) {
    ren_step_result result = REN_STEP_RESULT_INIT;
    EXPECT_OK(ren_trainer_step(trainer.get(), &pushed.batch, 0, &result));
    EXPECT_EQ(result.samples, 4);
    EXPECT_TRUE(result.correct >= 0 && result.correct <= result.correct5 && result.correct5 <= 4);
    out.push_back(result.loss);
  }
  return out;
}

TEST(Mixing, PushedBatchesAreMixedByTheTrainer) {
  const ModelPtr model = load_model();
  const auto plain = losses(model, mixing(0, 0));
  for (const auto& [mixup, cutmix] : {std::pair{0.5, 0.0}, {0.0, 1.0}, {0.5, 1.0}}) {
    const auto first = losses(model, mixing(mixup, cutmix)), second = losses(model, mixing(mixup, cutmix));
    EXPECT_EQ(first, second);
    EXPECT_NE(first, plain);
    EXPECT_NE(first[0], first[1]);  // each step draws anew
    ren_trainer_options other = mixing(mixup, cutmix);
    other.seed = 4;
    EXPECT_NE(losses(model, other), first);
  }
}

TEST(Mixing, EvaluationAndPredictionAreAsWithout) {
  const ModelPtr model = load_model();
  const TrainerPtr with = make_trainer(model, mixing(0.5, 1)), without = make_trainer(model, mixing(0, 0));
  const Pushed pushed(info_of(model), 4);
  ren_step_result a = REN_STEP_RESULT_INIT, b = REN_STEP_RESULT_INIT;
  ASSERT_OK(ren_trainer_evaluate_batch(with.get(), &pushed.batch, &a));
  ASSERT_OK(ren_trainer_evaluate_batch(without.get(), &pushed.batch, &b));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.correct, b.correct);
}

TEST(Mixing, StreamsFromCallbacksAreMixed) {
  const ModelPtr model = load_model();
  const auto loss_of = [&](double mixup) {
    Stream stream{info_of(model)};
    const LoaderPtr loader = stream.loader(12, 4);
    ren_loader_info info = REN_LOADER_INFO_INIT;
    EXPECT_OK(ren_loader_get_info(loader.get(), &info));
    EXPECT_EQ(info.mixup_alpha + info.cutmix_alpha, 0);
    const TrainerPtr trainer = make_trainer(model, mixing(mixup, 0));
    ren_progress end = REN_PROGRESS_INIT;
    EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, &end, nullptr, nullptr));
    EXPECT_EQ(end.training.samples, 12);
    return end.training.loss;
  };
  EXPECT_EQ(loss_of(1), loss_of(1));
  EXPECT_NE(loss_of(1), loss_of(0));
}

class MixingPictures : public testing::Test {
 protected:
  void SetUp() override {
    for (int c = 0; c < 10; ++c) {
      const std::string place = folder_.at("data/class" + std::to_string(c));
      std::filesystem::create_directories(place);
      std::filesystem::copy_file(std::string(REN_FIXTURES) + "/data/rgb.png", place + "/0.png");
    }
    ASSERT_OK(ren_dataset_open(folder_.at("data").c_str(), nullptr, &data_));
  }
  void TearDown() override { ren_dataset_destroy(data_); }

  LoaderPtr loader(const char* augmentation) {
    const ren_model_info info = info_of(model_);
    ren_loader_options o = REN_LOADER_OPTIONS_INIT;
    o.channels = info.channels;
    o.height = info.height;
    o.width = info.width;
    o.batch = 5;
    o.augmentation = augmentation;
    ren_loader* out = nullptr;
    EXPECT_OK(ren_loader_create(data_, "train", &o, &out));
    return LoaderPtr(out);
  }
  TrainerPtr trainer(double mixup, double cutmix) {
    ren_trainer_options o = mixing(mixup, cutmix);
    o.image_type = REN_IMAGE_UINT8;
    o.batch = 5;
    return make_trainer(model_, o);
  }

  Folder folder_;
  ModelPtr model_ = load_model();
  ren_dataset* data_ = nullptr;
};

TEST_F(MixingPictures, ALoaderTellsWhatTheTrainerHasToDo) {
  const LoaderPtr with = loader("flip,mixup:0.2,cutmix:1.5"), without = loader("flip");
  ren_loader_info info = REN_LOADER_INFO_INIT;
  ASSERT_OK(ren_loader_get_info(with.get(), &info));
  EXPECT_EQ(info.mixup_alpha, 0.2);
  EXPECT_EQ(info.cutmix_alpha, 1.5);
  char text[64];
  ASSERT_OK(ren_loader_augmentation(with.get(), text, sizeof text, nullptr));
  EXPECT_EQ(std::string(text), "flip:0.5,mixup:0.2,cutmix:1.5");

  const TrainerPtr mixes = trainer(0.2, 1.5), plain = trainer(0, 0), other = trainer(0.2, 1);
  const auto fit = [](const TrainerPtr& t, const LoaderPtr& l) {
    return ren_trainer_fit(t.get(), l.get(), nullptr, nullptr, nullptr, nullptr, nullptr);
  };
  EXPECT_OK(fit(mixes, with));
  EXPECT_EQ(fit(plain, with), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ren_last_error_message()).find("mixup_alpha 0.2 and cutmix_alpha 1.5"),
            std::string::npos);
  EXPECT_EQ(fit(other, with), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_OK(fit(plain, without));
  EXPECT_OK(fit(trainer(0.2, 1.5), without));  // it mixes whatever comes
  ren_metrics metrics{};
  EXPECT_OK(ren_trainer_evaluate(plain.get(), with.get(), &metrics, nullptr, nullptr));
}

// Pictures are the loader's, mixtures are not among them.
TEST_F(MixingPictures, ALoadersOwnPicturesAreNotMixed) {
  const LoaderPtr with = loader("mixup:0.2"), without = loader("none");
  ren_batch a = REN_BATCH_INIT, b = REN_BATCH_INIT;
  for (const auto& [l, batch] : {std::pair{with.get(), &a}, {without.get(), &b}}) {
    ASSERT_OK(ren_loader_start_epoch(l, 0, 0));
    ASSERT_OK(ren_loader_next(l, batch));
  }
  const auto bytes = size_t(a.count * a.channels * a.height * a.width);
  EXPECT_EQ(std::memcmp(a.images, b.images, bytes), 0);
}

TEST(Mixing, AlphasOutOfRangeAreRefused) {
  const ModelPtr model = load_model();
  for (const double alpha : {-0.2, 1e-4, 1e4, double(NAN), double(INFINITY)}) {
    for (const bool cutmix : {false, true}) {
      const ren_trainer_options options = mixing(cutmix ? 0 : alpha, cutmix ? alpha : 0);
      ren_trainer* trainer = nullptr;
      EXPECT_EQ(ren_trainer_create(model.get(), &options, &trainer), REN_ERROR_INVALID_ARGUMENT) << alpha;
      EXPECT_NE(std::string(ren_last_error_message()).find(cutmix ? "cutmix_alpha" : "mixup_alpha"),
                std::string::npos);
      EXPECT_EQ(trainer, nullptr);
    }
  }
}

TEST(Mixing, OlderProgramsDontMix) {
  const ModelPtr model = load_model();
  ren_trainer_options options = mixing(0.5, 1);
  for (const size_t size :
       {offsetof(ren_trainer_options, deterministic), offsetof(ren_trainer_options, mixup_alpha)}) {
    options.struct_size = uint32_t(size);
    EXPECT_EQ(losses(model, options), losses(model, mixing(0, 0)));
  }
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(12, 4);
  ren_loader_info info = REN_LOADER_INFO_INIT;
  info.struct_size = offsetof(ren_loader_info, mixup_alpha);
  info.mixup_alpha = -1;
  EXPECT_OK(ren_loader_get_info(loader.get(), &info));
  EXPECT_EQ(info.samples, 12);
  EXPECT_EQ(info.mixup_alpha, -1);  // not theirs to be written
}

}  // namespace
}  // namespace ren::test
