// SPDX-License-Identifier: Apache-2.0
// Every function called wrongly: a status and a text, never a crash; and all goes on afterwards.
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "capi/support.h"

namespace ren::test {
namespace {

struct Call {
  const char* name;
  std::function<int32_t()> run;
};

// With every pointer NULL.
std::vector<Call> all_null() {
  return {
      {"ren_report_text", [] { return ren_report_text(nullptr, nullptr, 0, nullptr); }},
      {"ren_report_json", [] { return ren_report_json(nullptr, nullptr, 0, nullptr); }},
      {"ren_report_html", [] { return ren_report_html(nullptr, nullptr, 0, nullptr); }},
      {"ren_report_passed", [] { return ren_report_passed(nullptr, nullptr); }},
      {"ren_report_write", [] { return ren_report_write(nullptr, 0, nullptr); }},
      {"ren_check_output", [] { return ren_check_output(nullptr, 0, nullptr, 0); }},
      {"ren_doctor", [] { return ren_doctor(nullptr); }},
      {"ren_model_load", [] { return ren_model_load(nullptr, nullptr, nullptr); }},
      {"ren_model_get_info", [] { return ren_model_get_info(nullptr, nullptr); }},
      {"ren_model_input_name", [] { return ren_model_input_name(nullptr, nullptr, 0, nullptr); }},
      {"ren_model_producer", [] { return ren_model_producer(nullptr, nullptr, 0, nullptr); }},
      {"ren_model_output_info", [] { return ren_model_output_info(nullptr, 0, nullptr); }},
      {"ren_model_output_name", [] { return ren_model_output_name(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_tensor_info", [] { return ren_model_tensor_info(nullptr, 0, nullptr); }},
      {"ren_model_tensor_name", [] { return ren_model_tensor_name(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_tensor_reason", [] { return ren_model_tensor_reason(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_tensor_find", [] { return ren_model_tensor_find(nullptr, nullptr, nullptr); }},
      {"ren_model_note", [] { return ren_model_note(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_warning", [] { return ren_model_warning(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_external_file", [] { return ren_model_external_file(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_model_metadata", [] { return ren_model_metadata(nullptr, nullptr, nullptr, 0, nullptr); }},
      {"ren_model_tensor_get", [] { return ren_model_tensor_get(nullptr, nullptr, nullptr, 0, nullptr); }},
      {"ren_model_tensor_set", [] { return ren_model_tensor_set(nullptr, nullptr, nullptr, 0); }},
      {"ren_model_export", [] { return ren_model_export(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_model_report", [] { return ren_model_report(nullptr, nullptr); }},
      {"ren_dataset_open", [] { return ren_dataset_open(nullptr, nullptr, nullptr); }},
      {"ren_dataset_open_pictures", [] { return ren_dataset_open_pictures(nullptr, nullptr); }},
      {"ren_dataset_class_count", [] { return ren_dataset_class_count(nullptr, nullptr); }},
      {"ren_dataset_class_name", [] { return ren_dataset_class_name(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_dataset_size", [] { return ren_dataset_size(nullptr, nullptr, nullptr); }},
      {"ren_dataset_path", [] { return ren_dataset_path(nullptr, nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_dataset_label", [] { return ren_dataset_label(nullptr, nullptr, 0, nullptr); }},
      {"ren_dataset_warning_count", [] { return ren_dataset_warning_count(nullptr, nullptr); }},
      {"ren_dataset_warning", [] { return ren_dataset_warning(nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_loader_create", [] { return ren_loader_create(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_loader_create_from_callback",
       [] { return ren_loader_create_from_callback(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_loader_get_info", [] { return ren_loader_get_info(nullptr, nullptr); }},
      {"ren_loader_get_statistics", [] { return ren_loader_get_statistics(nullptr, nullptr); }},
      {"ren_loader_augmentation", [] { return ren_loader_augmentation(nullptr, nullptr, 0, nullptr); }},
      {"ren_loader_report", [] { return ren_loader_report(nullptr, nullptr); }},
      {"ren_loader_start_epoch", [] { return ren_loader_start_epoch(nullptr, 0, 0); }},
      {"ren_loader_next", [] { return ren_loader_next(nullptr, nullptr); }},
      {"ren_loader_request_stop", [] { return ren_loader_request_stop(nullptr); }},
      {"ren_trainer_create", [] { return ren_trainer_create(nullptr, nullptr, nullptr); }},
      {"ren_trainer_device_name", [] { return ren_trainer_device_name(nullptr, nullptr, 0, nullptr); }},
      {"ren_trainer_step", [] { return ren_trainer_step(nullptr, nullptr, 0.1, nullptr); }},
      {"ren_trainer_evaluate_batch", [] { return ren_trainer_evaluate_batch(nullptr, nullptr, nullptr); }},
      {"ren_trainer_predict", [] { return ren_trainer_predict(nullptr, nullptr, nullptr, nullptr, 0); }},
      {"ren_trainer_fit",
       [] { return ren_trainer_fit(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"ren_trainer_evaluate",
       [] { return ren_trainer_evaluate(nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"ren_trainer_request_stop", [] { return ren_trainer_request_stop(nullptr); }},
      {"ren_trainer_position", [] { return ren_trainer_position(nullptr, nullptr); }},
      {"ren_trainer_tensor_get",
       [] { return ren_trainer_tensor_get(nullptr, nullptr, 0, nullptr, 0, nullptr); }},
      {"ren_trainer_tensor_set", [] { return ren_trainer_tensor_set(nullptr, nullptr, 0, nullptr, 0); }},
      {"ren_trainer_checkpoint_save", [] { return ren_trainer_checkpoint_save(nullptr, nullptr); }},
      {"ren_trainer_checkpoint_load", [] { return ren_trainer_checkpoint_load(nullptr, nullptr); }},
      {"ren_trainer_resume", [] { return ren_trainer_resume(nullptr, nullptr, nullptr); }},
      {"ren_trainer_export", [] { return ren_trainer_export(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_trainer_plan", [] { return ren_trainer_plan(nullptr, nullptr); }},
      {"ren_dataset_pack",
       [] { return ren_dataset_pack(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"ren_dataset_inspect",
       [] { return ren_dataset_inspect(nullptr, nullptr, nullptr, nullptr, nullptr); }},
      {"ren_dataset_sheet", [] { return ren_dataset_sheet(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_verify", [] { return ren_verify(nullptr, nullptr, nullptr, nullptr); }},
      {"ren_bench_step", [] { return ren_bench_step(nullptr, nullptr, nullptr, nullptr); }},
  };
}

TEST(Misuse, NullEverywhereIsAnInvalidArgument) {
  for (const Call& call : all_null()) {
    EXPECT_EQ(call.run(), REN_ERROR_INVALID_ARGUMENT) << call.name;
    if (std::string(call.name) == "ren_trainer_request_stop") continue;  // for signal handlers: no text
    EXPECT_NE(std::string(ren_last_error_message()).find("NULL"), std::string::npos) << call.name;
    EXPECT_EQ(ren_last_error_code(), REN_ERROR_INVALID_ARGUMENT) << call.name;
  }
}

// The header's functions are all in the list above, but those that take nothing or return no status.
TEST(Misuse, NoFunctionIsLeftOut) {
  std::set<std::string> tried;
  for (const Call& call : all_null()) tried.insert(call.name);
  const std::set<std::string> others = {
      "ren_abi_version",        "ren_version",       "ren_status_name",     "ren_last_error_code",
      "ren_last_error_message", "ren_last_error_op", "ren_last_error_node", "ren_set_compute_threads"};
  std::FILE* file = std::fopen(REN_SOURCE_DIR "/include/renaissance_c.h", "r");
  ASSERT_NE(file, nullptr);
  char line[512];
  int found = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const std::string text = line;
    if (text.rfind("REN_API ", 0) != 0) continue;
    const size_t open = text.find('('), begin = text.rfind("ren_", open);
    const std::string name = text.substr(begin, open - begin);
    if (name.ends_with("_destroy")) continue;
    ++found;
    EXPECT_TRUE(tried.count(name) || others.count(name)) << name;
  }
  std::fclose(file);
  EXPECT_GT(found, 50);
}

TEST(Misuse, DestroyTakesNull) {
  ren_report_destroy(nullptr);
  ren_model_destroy(nullptr);
  ren_dataset_destroy(nullptr);
  ren_loader_destroy(nullptr);
  ren_trainer_destroy(nullptr);
}

TEST(Misuse, AnotherKindOfHandleIsNoticed) {
  const ModelPtr model = load_model();
  ren_trainer* const wrong = reinterpret_cast<ren_trainer*>(model.get());
  EXPECT_EQ(ren_trainer_checkpoint_save(wrong, "/tmp/x"), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_trainer_request_stop(wrong), REN_ERROR_INVALID_ARGUMENT);
  ren_trainer_destroy(wrong);  // leaves it alone
  EXPECT_GT(info_of(model).tensors, 0);
}

TEST(Misuse, SizesOfStructsAreChecked) {
  const ModelPtr model = load_model();
  ren_model_info info{};  // no INIT
  EXPECT_EQ(ren_model_get_info(model.get(), &info), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ren_last_error_message()).find("INIT"), std::string::npos);
  info.struct_size = 4;
  EXPECT_EQ(ren_model_get_info(model.get(), &info), REN_ERROR_INVALID_ARGUMENT);
  info.struct_size = 0xffffffff;
  EXPECT_EQ(ren_model_get_info(model.get(), &info), REN_ERROR_INVALID_ARGUMENT);
}

// A program compiled with a newer header: what this library doesn't know has to be unset.
TEST(Misuse, NewerOptionsAreRefusedOnlyWhenSet) {
  struct Newer {
    ren_model_options known;
    uint64_t unknown;
  } newer{};
  newer.known.struct_size = sizeof newer;
  ren_model* model = nullptr;
  ASSERT_OK(ren_model_load(example_model().c_str(), &newer.known, &model));
  ren_model_destroy(model);
  newer.unknown = 1;
  model = nullptr;
  EXPECT_EQ(ren_model_load(example_model().c_str(), &newer.known, &model), REN_ERROR_UNSUPPORTED);
  EXPECT_EQ(model, nullptr);
}

TEST(Misuse, BenchmarksHaveTheProgramsBounds) {
  const ModelPtr model = load_model();
  const auto refused = [&](auto&& change, const char* part) {
    ren_bench_options bench = REN_BENCH_OPTIONS_INIT;
    const ren_trainer_options options = small_options();
    change(bench);
    ren_report* report = nullptr;
    EXPECT_EQ(ren_bench_step(model.get(), &options, &bench, &report), REN_ERROR_INVALID_ARGUMENT) << part;
    EXPECT_NE(std::string(ren_last_error_message()).find(part), std::string::npos)
        << ren_last_error_message();
    EXPECT_EQ(report, nullptr);
  };
  for (const int32_t steps : {-1, 1'000'001, std::numeric_limits<int32_t>::max()})
    refused([&](auto& b) { b.steps = steps; }, "steps");
  for (const int32_t windows : {-1, 1001, std::numeric_limits<int32_t>::max()})
    refused([&](auto& b) { b.windows = windows; }, "windows");
  refused([](auto& b) { b.no_profile = 7; }, "no_profile");
}

TEST(Misuse, ReservedFieldsAreZero) {
  ren_model_options options = REN_MODEL_OPTIONS_INIT;
  options.reserved0 = 1;
  ren_model* model = nullptr;
  EXPECT_EQ(ren_model_load(example_model().c_str(), &options, &model), REN_ERROR_UNSUPPORTED);
  EXPECT_EQ(model, nullptr);
  ren_dataset_options data = REN_DATASET_OPTIONS_INIT;
  data.reserved0 = 1;
  ren_dataset* dataset = nullptr;
  EXPECT_EQ(ren_dataset_open("/", &data, &dataset), REN_ERROR_UNSUPPORTED);
  EXPECT_EQ(dataset, nullptr);
}

TEST(Misuse, TextBuffers) {
  const ModelPtr model = load_model();
  size_t needed = 0;
  EXPECT_EQ(ren_model_input_name(model.get(), nullptr, 0, nullptr), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_model_input_name(model.get(), nullptr, 10, &needed), REN_ERROR_INVALID_ARGUMENT);
  ASSERT_OK(ren_model_input_name(model.get(), nullptr, 0, &needed));
  std::vector<char> exact(needed, 'x'), small(needed - 1, 'x');
  EXPECT_OK(ren_model_input_name(model.get(), exact.data(), exact.size(), nullptr));
  EXPECT_EQ(exact.back(), '\0');
  size_t again = 0;
  EXPECT_EQ(ren_model_input_name(model.get(), small.data(), small.size(), &again),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(again, needed);  // the one thing that a failed call writes
  EXPECT_EQ(small, std::vector<char>(needed - 1, 'x'));
}

TEST(Misuse, IndicesOutOfRange) {
  const ModelPtr model = load_model();
  ren_tensor_info info = REN_TENSOR_INFO_INIT;
  for (const int64_t index : {int64_t{-1}, info_of(model).tensors, INT64_MAX, INT64_MIN})
    EXPECT_EQ(ren_model_tensor_info(model.get(), index, &info), REN_ERROR_INVALID_ARGUMENT) << index;
}

TEST(Misuse, TrainerOptionsOutOfRangeAreAllListed) {
  const ModelPtr model = load_model();
  ren_trainer_options options = small_options();
  options.momentum = 1.5;
  options.weight_decay = -1;
  options.label_smoothing = 2;
  ren_trainer* trainer = nullptr;
  EXPECT_EQ(ren_trainer_create(model.get(), &options, &trainer), REN_ERROR_INVALID_ARGUMENT);
  for (const char* name : {"momentum", "weight_decay", "label_smoothing"})
    EXPECT_NE(std::string(ren_last_error_message()).find(name), std::string::npos) << name;
  EXPECT_EQ(trainer, nullptr);

  const auto refused = [&](auto&& change, int32_t status) {
    ren_trainer_options o = small_options();
    change(o);
    EXPECT_EQ(ren_trainer_create(model.get(), &o, &trainer), status) << ren_last_error_message();
    EXPECT_EQ(trainer, nullptr);
  };
  refused([](auto& o) { o.precision = 99; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.optimizer = -1; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.schedule = 3; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.image_type = 5; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.batch = -4; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.learning_rate = std::nan(""); }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.device = "tpu"; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.device = "cuda:x"; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.device = "cpu:1"; }, REN_ERROR_NOT_FOUND);
  refused([](auto& o) { o.normalize = "svhn"; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.losses = "nothing:1"; }, REN_ERROR_NOT_FOUND);
  for (const char* losses :
       {":", "", ",", "logits,", ",logits", "logits:", "logits:x", "logits:0", "logits:-1", "logits:nan",
        "logits:inf", "logits:1e99", "logits,logits", "logits:1,logits:2"})
    refused([&](auto& o) { o.losses = losses; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.channel_count = 3; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.other_batch_count = 1; }, REN_ERROR_INVALID_ARGUMENT);
  refused([](auto& o) { o.memory_limit = 1000; }, REN_ERROR_OUT_OF_MEMORY);
}

TEST(Misuse, LossesNamedTwiceAreSaidSo) {
  const ModelPtr model = load_model();
  ren_trainer_options options = small_options();
  options.losses = "logits:1,logits:2";
  ren_trainer* trainer = nullptr;
  EXPECT_EQ(ren_trainer_create(model.get(), &options, &trainer), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ren_last_error_message()).find("'logits' is named twice"), std::string::npos)
      << ren_last_error_message();
}

TEST(Misuse, SourcesOfImpossibleSizes) {
  const auto fill = [](void*, int64_t, int64_t, int64_t, void*, int32_t*) -> int32_t { return 0; };
  const auto refused = [&](auto&& change, const char* text) {
    ren_source_options o = REN_SOURCE_OPTIONS_INIT;
    o.samples = o.batch = 4;
    o.channels = o.height = o.width = 3;
    change(o);
    ren_loader* loader = nullptr;
    EXPECT_EQ(ren_loader_create_from_callback(&o, &loader, fill, nullptr), REN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ren_last_error_message()).find(text), std::string::npos)
        << ren_last_error_message();
  };
  refused([](auto& o) { o.channels = int64_t{1} << 31; }, "channels is 2147483648: 1 to 65535 are possible");
  refused([](auto& o) { o.height = 65536; }, "height is 65536: 1 to 65535");
  refused([](auto& o) { o.width = -1; }, "width is -1: 1 to 65535");
  refused([](auto& o) { o.batch = (1 << 24) + 1; }, "batch is 16777217: 1 to 16777216");
  refused([](auto& o) { o.batch = 0; }, "batch is 0: 1 to 16777216");
  refused([](auto& o) { o.channels = o.height = o.width = 65535; }, "too many");
}

// One file for the limits of folders' loaders: the same as for callbacks and trainers.
TEST(Misuse, LoadersOfImpossibleSizes) {
  const std::string place = std::string(REN_FIXTURES) + "/data";
  ren_dataset* data = nullptr;
  ASSERT_OK(ren_dataset_open_pictures(place.c_str(), &data));
  const auto refused = [&](auto&& change, const char* text) {
    ren_loader_options o = REN_LOADER_OPTIONS_INIT;
    o.batch = 4;
    o.channels = o.height = o.width = 3;
    change(o);
    ren_loader* loader = nullptr;
    EXPECT_EQ(ren_loader_create(data, "all", &o, &loader), REN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ren_last_error_message()).find(text), std::string::npos)
        << ren_last_error_message();
    ren_loader_destroy(loader);
  };
  refused([](auto& o) { o.channels = int64_t{1} << 31; }, "channels is 2147483648");
  refused([](auto& o) { o.channels = 2; }, "channels is 2: pictures have 3 (RGB) or 1 (gray)");
  refused([](auto& o) { o.height = 65536; }, "height is 65536");
  refused([](auto& o) { o.batch = (1 << 24) + 1; }, "batch is 16777217: 1 to 16777216");
  refused([](auto& o) { o.batch = -1; }, "batch is -1");
  refused([](auto& o) { o.threads = 1025; }, "threads is 1025: 0 (one a processor) to 1024");
  refused([](auto& o) { o.threads = -1; }, "threads is -1");
  ren_dataset_destroy(data);
}

TEST(Misuse, BatchesThatDoNotFit) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  const TrainerPtr trainer = make_trainer(model, small_options());
  const Pushed good(info, 4);
  ren_step_result result = REN_STEP_RESULT_INIT;
  ASSERT_OK(ren_trainer_step(trainer.get(), &good.batch, 0.01, &result));
  const auto refused = [&](auto&& change) {
    ren_batch b = good.batch;
    change(b);
    EXPECT_EQ(ren_trainer_step(trainer.get(), &b, 0.01, &result), REN_ERROR_INVALID_ARGUMENT)
        << ren_last_error_message();
    // and the next call works
    EXPECT_OK(ren_trainer_step(trainer.get(), &good.batch, 0.01, &result));
  };
  refused([](auto& b) { b.struct_size = 0; });
  refused([](auto& b) { b.image_type = REN_IMAGE_UINT8; });
  refused([](auto& b) { b.image_type = 17; });
  refused([](auto& b) { b.layout = 2; });
  refused([](auto& b) { b.count = 0; });
  refused([](auto& b) { b.count = 3; });
  refused([](auto& b) { b.count = INT64_MAX; });
  refused([](auto& b) { b.channels = 1; });
  refused([](auto& b) { b.height += 1; });
  refused([](auto& b) { b.images = nullptr; });
  refused([](auto& b) { b.labels = nullptr; });
  refused([](auto& b) { b.label_count = 3; });
  EXPECT_EQ(ren_trainer_step(trainer.get(), &good.batch, -1, &result), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_trainer_step(trainer.get(), &good.batch, std::nan(""), &result), REN_ERROR_INVALID_ARGUMENT);
  Pushed labels(info, 4);
  labels.labels[2] = 10;  // ten classes
  EXPECT_EQ(ren_trainer_step(trainer.get(), &labels.batch, 0.01, &result), REN_ERROR_INVALID_DATA);
  EXPECT_OK(ren_trainer_step(trainer.get(), &good.batch, 0.01, nullptr));
}

TEST(Misuse, TensorsByWrongNameKindAndCount) {
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  const std::string weight = tensor_name(model, REN_ROLE_PARAMETER),
                    statistic = tensor_name(model, REN_ROLE_BUFFER);
  float values[1] = {0};
  size_t needed = 0;
  EXPECT_EQ(ren_trainer_tensor_get(trainer.get(), "gone", REN_TENSOR_PARAMETER, nullptr, 0, &needed),
            REN_ERROR_NOT_FOUND);
  EXPECT_EQ(ren_trainer_tensor_get(trainer.get(), weight.c_str(), 77, nullptr, 0, &needed),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_trainer_tensor_get(trainer.get(), weight.c_str(), REN_TENSOR_STATISTIC, nullptr, 0, &needed),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(
      ren_trainer_tensor_get(trainer.get(), statistic.c_str(), REN_TENSOR_PARAMETER, nullptr, 0, &needed),
      REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_trainer_tensor_get(trainer.get(), weight.c_str(), REN_TENSOR_EMA, nullptr, 0, &needed),
            REN_ERROR_INVALID_STATE);
  EXPECT_EQ(ren_trainer_tensor_get(trainer.get(), weight.c_str(), REN_TENSOR_PARAMETER, values, 1, &needed),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_trainer_tensor_set(trainer.get(), weight.c_str(), REN_TENSOR_PARAMETER, values, 1),
            REN_ERROR_INVALID_ARGUMENT);
  std::vector<float> right(needed);
  EXPECT_EQ(ren_trainer_tensor_set(trainer.get(), weight.c_str(), REN_TENSOR_GRADIENT, right.data(), needed),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_OK(ren_trainer_tensor_set(trainer.get(), weight.c_str(), REN_TENSOR_MOMENTUM, right.data(), needed));
}

TEST(Misuse, ParentsMayGoFirst) {
  ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  TrainerPtr trainer = make_trainer(model, small_options());
  model.reset();
  const Pushed batch(info, 4);
  EXPECT_OK(ren_trainer_step(trainer.get(), &batch.batch, 0.01, nullptr));
  ren_report* report = nullptr;
  EXPECT_OK(ren_trainer_plan(trainer.get(), &report));
  Stream stream{info};
  LoaderPtr loader = stream.loader(8, 4);
  EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));
  trainer.reset();
  EXPECT_OK(ren_loader_start_epoch(loader.get(), 0, 0));
  ren_batch next = REN_BATCH_INIT;
  EXPECT_OK(ren_loader_next(loader.get(), &next));
  loader.reset();
  size_t needed = 0;
  EXPECT_OK(ren_report_text(report, nullptr, 0, &needed));
  EXPECT_GT(needed, 100u);
  ren_report_destroy(report);
}

TEST(Misuse, EvaluationOnlyTrainersDoNotTrain) {
  const ModelPtr model = load_model();
  const ren_model_info info = info_of(model);
  ren_trainer_options options = small_options();
  options.evaluation_only = 1;
  const TrainerPtr trainer = make_trainer(model, options);
  const Pushed batch(info, 4);
  ren_step_result result = REN_STEP_RESULT_INIT;
  EXPECT_EQ(ren_trainer_step(trainer.get(), &batch.batch, 0.1, &result), REN_ERROR_INVALID_STATE);
  EXPECT_OK(ren_trainer_evaluate_batch(trainer.get(), &batch.batch, &result));
}

TEST(Misuse, FilesThatCannotBeWritten) {
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  EXPECT_EQ(ren_trainer_export(trainer.get(), "/no/such/folder/x.onnx", nullptr, nullptr), REN_ERROR_IO);
  EXPECT_EQ(ren_trainer_checkpoint_save(trainer.get(), "/no/such/folder/x"), REN_ERROR_IO);
  EXPECT_EQ(ren_model_export(model.get(), "/no/such/folder/x.onnx", nullptr, nullptr), REN_ERROR_IO);
  EXPECT_NE(std::string(ren_last_error_message()).find("/no/such/folder"), std::string::npos);
  EXPECT_EQ(ren_trainer_checkpoint_load(trainer.get(), "/no/such/file"), REN_ERROR_NOT_FOUND);
  EXPECT_EQ(ren_trainer_checkpoint_load(trainer.get(), example_model().c_str()), REN_ERROR_INVALID_DATA);
}

// Eight threads fail in their own ways at once; each reads its own text, and keeps it while others fail.
TEST(Errors, BelongToTheirThread) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const std::string path = "missing-" + std::to_string(t) + "-" + std::to_string(i) + ".onnx";
        ren_model* model = nullptr;
        ASSERT_EQ(ren_model_load(path.c_str(), nullptr, &model), REN_ERROR_NOT_FOUND);
        const char* const text = ren_last_error_message();
        std::this_thread::yield();
        ASSERT_NE(std::string(text).find(path), std::string::npos) << text;
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST(Errors, StayUntilTheNextFailure) {
  std::thread([] {
    EXPECT_EQ(ren_last_error_code(), REN_OK);  // a new thread has none
    EXPECT_STREQ(ren_last_error_message(), "");
  }).join();
  ren_model* missing = nullptr;
  EXPECT_EQ(ren_model_load("missing.onnx", nullptr, &missing), REN_ERROR_NOT_FOUND);
  const ModelPtr model = load_model();
  EXPECT_EQ(ren_last_error_code(), REN_ERROR_NOT_FOUND);  // success leaves it alone
}

}  // namespace
}  // namespace ren::test
