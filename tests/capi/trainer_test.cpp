// SPDX-License-Identifier: Apache-2.0
// Training through the C API: steps, streams, checkpoints, stops, export.
#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "capi/support.h"

namespace ren::test {
namespace {

namespace fs = std::filesystem;

TEST(Training, StepsLowerTheLossOfTheirBatch) {
  const ModelPtr model = load_model();
  const Pushed batch(info_of(model), 4);
  const TrainerPtr trainer = make_trainer(model, small_options());
  ren_step_result first = REN_STEP_RESULT_INIT, last = REN_STEP_RESULT_INIT;
  ASSERT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.05, &first));
  for (int i = 0; i < 20; ++i) ASSERT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.05, &last));
  EXPECT_EQ(first.samples, 4);
  EXPECT_LT(last.loss, 0.5 * first.loss);
  EXPECT_GE(last.correct5, last.correct);
  ren_position position = REN_POSITION_INIT;
  ASSERT_OK(ren_trainer_position(trainer.get(), &position));
  EXPECT_EQ(position.steps, 21);
}

TEST(Training, LayoutsOfABatchAreTheSamePictures) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  const Pushed planar(info, 4);
  Pushed interleaved(info, 4);
  const int64_t pixels = info.height * info.width;
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t c = 0; c < info.channels; ++c)
      for (int64_t p = 0; p < pixels; ++p)
        interleaved.images[size_t((n * pixels + p) * info.channels + c)] =
            planar.images[size_t((n * info.channels + c) * pixels + p)];
  interleaved.batch.layout = REN_LAYOUT_NHWC;
  std::vector<float> a(40), b(40);
  for (auto [pushed, values] :
       {std::pair{&planar, &a}, std::pair{const_cast<const Pushed*>(&interleaved), &b}}) {
    const TrainerPtr trainer = make_trainer(model, small_options());
    float* const outputs[] = {values->data()};
    const size_t counts[] = {values->size()};
    ASSERT_OK(ren_trainer_predict(trainer.get(), &pushed->batch, outputs, counts, 1));
  }
  EXPECT_EQ(a, b);
}

// Fewer pictures than the program is made for give what they give in a full batch.
TEST(Training, PartialBatchesInInference) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  const TrainerPtr trainer = make_trainer(model, small_options());
  Pushed batch(info, 4);
  std::vector<float> four(40), two(20);
  float* out[] = {four.data()};
  size_t counts[] = {40};
  ASSERT_OK(ren_trainer_predict(trainer.get(), &batch.batch, out, counts, 1));
  batch.batch.count = 2;
  batch.batch.label_count = 2;
  out[0] = two.data();
  counts[0] = 20;
  ASSERT_OK(ren_trainer_predict(trainer.get(), &batch.batch, out, counts, 1));
  four.resize(20);
  EXPECT_EQ(four, two);
  counts[0] = 19;
  EXPECT_EQ(ren_trainer_predict(trainer.get(), &batch.batch, out, counts, 1), REN_ERROR_INVALID_ARGUMENT);
}

TEST(Training, NormalisationIsTheSameForBytesAndFloats) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  Pushed floats(info, 4);
  std::vector<uint8_t> bytes;
  for (float& v : floats.images) {
    bytes.push_back(uint8_t(v * 255));
    v = float(bytes.back()) / 255.0f;
  }
  ren_batch pushed_bytes = floats.batch;
  pushed_bytes.image_type = REN_IMAGE_UINT8;
  pushed_bytes.images = bytes.data();
  std::vector<float> a(40), b(40);
  const auto run = [&](const ren_batch& batch, std::vector<float>& values) {
    ren_trainer_options options = small_options();
    options.image_type = batch.image_type;
    options.normalize = "imagenet";
    const TrainerPtr trainer = make_trainer(model, options);
    float* const outputs[] = {values.data()};
    const size_t counts[] = {values.size()};
    ASSERT_OK(ren_trainer_predict(trainer.get(), &batch, outputs, counts, 1));
  };
  run(floats.batch, a);
  run(pushed_bytes, b);
  // x / 255 is rounded once more on the float path: a few units in the last place at the input.
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * (1 + std::abs(a[i])));
}

TEST(Training, TensorsAreReadAndWrittenInTheFilesOrder) {
  const ModelPtr model = load_model();
  const Pushed batch(info_of(model), 4);
  const TrainerPtr trainer = make_trainer(model, small_options());
  for (int k = 0; k < 4; ++k) {
    const std::string name = tensor_name(model, REN_ROLE_PARAMETER, k);
    std::vector<float> file = tensor_of(trainer.get(), name.c_str(), REN_TENSOR_PARAMETER);
    std::vector<float> own(file.size());
    ASSERT_OK(ren_model_tensor_get(model.get(), name.c_str(), own.data(), own.size(), nullptr));
    EXPECT_EQ(file, own) << name;
    for (size_t i = 0; i < file.size(); ++i) file[i] = float(i);
    ASSERT_OK(
        ren_trainer_tensor_set(trainer.get(), name.c_str(), REN_TENSOR_PARAMETER, file.data(), file.size()));
    EXPECT_EQ(tensor_of(trainer.get(), name.c_str(), REN_TENSOR_PARAMETER), file) << name;
  }
}

// w - lr * (g + wd * w) by hand, from the tensors that the API gives.
TEST(Training, OneStepOfSgd) {
  const ModelPtr model = load_model();
  const Pushed batch(info_of(model), 4);
  ren_trainer_options options = small_options();
  options.weight_decay = 0.01;
  const TrainerPtr trainer = make_trainer(model, options);
  const std::string name = tensor_name(model, REN_ROLE_PARAMETER);
  const auto before = tensor_of(trainer.get(), name.c_str(), REN_TENSOR_PARAMETER);
  ASSERT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.1, nullptr));
  const auto after = tensor_of(trainer.get(), name.c_str(), REN_TENSOR_PARAMETER);
  const auto gradient = tensor_of(trainer.get(), name.c_str(), REN_TENSOR_GRADIENT);
  const auto momentum = tensor_of(trainer.get(), name.c_str(), REN_TENSOR_MOMENTUM);
  double moved = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double g = double(gradient[i]) + 0.01 * double(before[i]);
    EXPECT_NEAR(momentum[i], g, 1e-6 * (1e-3 + std::abs(g)));  // FP32 rounding of one sum
    EXPECT_NEAR(after[i], double(before[i]) - 0.1 * g, 1e-6 * (1e-2 + std::abs(before[i])));
    moved = std::max(moved, std::abs(double(after[i] - before[i])));
  }
  EXPECT_GT(moved, 1e-5);
}

TEST(Fit, StreamsFromACallback) {
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  const LoaderPtr training = stream.loader(12, 4), validation = stream.loader(8, 4);
  ren_trainer_options options = small_options();
  options.epochs = 2;
  const TrainerPtr trainer = make_trainer(model, options);
  std::vector<int32_t> phases;
  ren_progress result = REN_PROGRESS_INIT;
  const auto watch = [](void* user, const ren_progress* p) -> int32_t {
    EXPECT_EQ(p->struct_size, sizeof(ren_progress));
    static_cast<std::vector<int32_t>*>(user)->push_back(p->phase);
    return 0;
  };
  ASSERT_OK(
      ren_trainer_fit(trainer.get(), training.get(), validation.get(), nullptr, &result, watch, &phases));
  const std::vector<int32_t> epoch = {REN_PHASE_TRAINING,   REN_PHASE_TRAINING,   REN_PHASE_TRAINING,
                                      REN_PHASE_EVALUATING, REN_PHASE_EVALUATING, REN_PHASE_EPOCH_DONE};
  std::vector<int32_t> expected = epoch;
  expected.insert(expected.end(), epoch.begin(), epoch.end());
  EXPECT_EQ(phases, expected);
  EXPECT_EQ(result.training.samples, 12);
  EXPECT_EQ(result.validation.samples, 8);
  ren_metrics again{};
  ASSERT_OK(ren_trainer_evaluate(trainer.get(), validation.get(), &again, nullptr, nullptr));
  EXPECT_EQ(again.loss, result.validation.loss);
}

TEST(Fit, AFailingSourceIsReportedAndTheTrainerLives) {
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  stream.fail_at = 1;
  const LoaderPtr loader = stream.loader(12, 4);
  const TrainerPtr trainer = make_trainer(model, small_options());
  EXPECT_EQ(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
            REN_ERROR_CANCELLED);
  stream.fail_at = -1;
  EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));
}

TEST(Fit, DataThatDoesNotFitIsRefusedWithAllReasons) {
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  stream.info.height += 1;
  const LoaderPtr loader = stream.loader(12, 3);
  const TrainerPtr trainer = make_trainer(model, small_options());
  EXPECT_EQ(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
            REN_ERROR_INVALID_ARGUMENT);
  const std::string text = ren_last_error_message();
  EXPECT_NE(text.find("batches of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("(height, width, channels)"), std::string::npos) << text;
}

std::vector<float> all_weights(const ModelPtr& model, ren_trainer* trainer) {
  std::vector<float> all;
  for (int64_t i = 0; i < info_of(model).tensors; ++i) {
    ren_tensor_info info = REN_TENSOR_INFO_INIT;
    EXPECT_OK(ren_model_tensor_info(model.get(), i, &info));
    if (info.role != REN_ROLE_PARAMETER && info.role != REN_ROLE_BUFFER) continue;
    char name[256];
    EXPECT_OK(ren_model_tensor_name(model.get(), i, name, sizeof name, nullptr));
    const auto values =
        tensor_of(trainer, name, info.role == REN_ROLE_BUFFER ? REN_TENSOR_STATISTIC : REN_TENSOR_PARAMETER);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Stopped in the middle of an epoch and resumed in a new trainer: bit for bit what an uninterrupted one gets.
TEST(Fit, AStopWritesACheckpointThatGoesOnBitForBit) {
  const Folder folder;
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  ren_trainer_options options = small_options();
  options.epochs = 2;
  options.schedule = REN_SCHEDULE_COSINE;
  const TrainerPtr whole = make_trainer(model, options);
  const LoaderPtr loader = stream.loader(20, 4);
  ASSERT_OK(ren_trainer_fit(whole.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));

  const std::string file = folder.at("c.ckpt");
  ren_fit_options fit = REN_FIT_OPTIONS_INIT;
  fit.checkpoint = file.c_str();
  const TrainerPtr stopped = make_trainer(model, options);
  const auto stop_at_third = [](void*, const ren_progress* p) -> int32_t {
    return p->phase == REN_PHASE_TRAINING && p->step == 3;
  };
  EXPECT_EQ(ren_trainer_fit(stopped.get(), loader.get(), nullptr, &fit, nullptr, stop_at_third, nullptr),
            REN_ERROR_CANCELLED);
  ASSERT_TRUE(fs::exists(file));

  const TrainerPtr resumed = make_trainer(model, options);
  ASSERT_OK(ren_trainer_checkpoint_load(resumed.get(), file.c_str()));
  ren_position position = REN_POSITION_INIT;
  ASSERT_OK(ren_trainer_position(resumed.get(), &position));
  EXPECT_EQ(position.steps, 3);
  ASSERT_OK(ren_trainer_fit(resumed.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(all_weights(model, whole.get()), all_weights(model, resumed.get()));
  // The stopped one can go on, too.
  ASSERT_OK(ren_trainer_fit(stopped.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(all_weights(model, whole.get()), all_weights(model, stopped.get()));
}

TEST(Fit, StopsFromAnotherThread) {
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  ren_trainer_options options = small_options();
  options.epochs = 100000;
  const TrainerPtr trainer = make_trainer(model, options);
  const LoaderPtr loader = stream.loader(8, 4);
  std::atomic<int> steps{0};
  const auto count = [](void* user, const ren_progress*) -> int32_t {
    ++*static_cast<std::atomic<int>*>(user);
    return 0;
  };
  std::thread stopper([&] {
    while (steps < 5) std::this_thread::yield();
    EXPECT_OK(ren_trainer_request_stop(trainer.get()));
  });
  EXPECT_EQ(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, count, &steps),
            REN_ERROR_CANCELLED);
  stopper.join();
}

TEST(Export, GivesTheTrainedValuesBack) {
  const Folder folder;
  const ModelPtr model = load_model();
  const Pushed batch(info_of(model), 4);
  ren_trainer_options options = small_options();
  options.ema_decay = 0.5;
  const TrainerPtr trainer = make_trainer(model, options);
  for (int i = 0; i < 3; ++i) ASSERT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.05, nullptr));
  const char* const metadata[] = {"renaissance.classes", "[\"a\"]", "key", "value \xC3\xA4"};
  ren_export_options e = REN_EXPORT_OPTIONS_INIT;
  e.metadata = metadata;
  e.metadata_count = 4;
  for (const int32_t averaged : {0, 1}) {
    e.use_ema = averaged;
    const std::string file = folder.at(averaged ? "ema.onnx" : "w.onnx");
    ren_report* notes = nullptr;
    ASSERT_OK(ren_trainer_export(trainer.get(), file.c_str(), &e, &notes));
    ren_report_destroy(notes);
    const ModelPtr again = load_model(file);
    for (int k = 0; k < 3; ++k) {
      const std::string name = tensor_name(model, REN_ROLE_PARAMETER, k);
      const auto expected =
          tensor_of(trainer.get(), name.c_str(), averaged ? REN_TENSOR_EMA : REN_TENSOR_PARAMETER);
      std::vector<float> found(expected.size());
      ASSERT_OK(ren_model_tensor_get(again.get(), name.c_str(), found.data(), found.size(), nullptr));
      EXPECT_EQ(found, expected) << name;
    }
    char text[64];
    ASSERT_OK(ren_model_metadata(again.get(), "key", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "value \xC3\xA4");
    EXPECT_EQ(ren_model_metadata(again.get(), "none", text, sizeof text, nullptr), REN_ERROR_NOT_FOUND);
    ASSERT_OK(ren_model_metadata(again.get(), "renaissance.classes", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "[\"a\"]");  // the caller's, not the loader's
  }
}

TEST(Export, AveragesNeedToBeKept) {
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  ren_export_options e = REN_EXPORT_OPTIONS_INIT;
  e.use_ema = 1;
  EXPECT_EQ(ren_trainer_export(trainer.get(), "/tmp/never.onnx", &e, nullptr), REN_ERROR_INVALID_STATE);
}

TEST(Plan, ComesAsTextJsonAndHtml) {
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  ren_report* report = nullptr;
  ASSERT_OK(ren_trainer_plan(trainer.get(), &report));
  size_t needed = 0;
  ASSERT_OK(ren_report_json(report, nullptr, 0, &needed));
  std::string json(needed, '\0');
  ASSERT_OK(ren_report_json(report, json.data(), json.size(), nullptr));
  json.pop_back();
  EXPECT_FALSE(nlohmann::json::parse(json, nullptr, false).is_discarded());
  EXPECT_OK(ren_report_html(report, nullptr, 0, &needed));
  ren_report_destroy(report);
}

// Two models trained at once on two threads get what each gets alone.
TEST(Threads, TwoTrainersAtOnce) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  const auto train = [&](uint32_t seed, std::vector<float>& weights) {
    const TrainerPtr trainer = make_trainer(model, small_options());
    const Pushed batch(info, 4, seed);
    for (int i = 0; i < 5; ++i) EXPECT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.05, nullptr));
    weights = all_weights(model, trainer.get());
  };
  std::vector<float> alone[2], together[2];
  train(1, alone[0]);
  train(2, alone[1]);
  std::thread first([&] { train(1, together[0]); }), second([&] { train(2, together[1]); });
  first.join();
  second.join();
  EXPECT_EQ(alone[0], together[0]);
  EXPECT_EQ(alone[1], together[1]);
}

}  // namespace
}  // namespace ren::test
