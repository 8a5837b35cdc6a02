// SPDX-License-Identifier: Apache-2.0
// Files that are written: where, and what they must not replace; handles that are in use.
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "capi/support.h"

namespace ren::test {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool says(const char* part) { return std::string(ren_last_error_message()).find(part) != std::string::npos; }

TEST(Places, OutputsAreTriedAndComparedBeforeTheWork) {
  const Folder folder;
  std::ofstream(folder.at("there")) << "mine";
  fs::create_symlink("there", folder.at("link"));
  fs::create_hard_link(folder.at("there"), folder.at("hard"));
  const std::string there = folder.at("there"), other = folder.at("other");
  const char* const needed[] = {other.c_str(), there.c_str()};
  for (const char* name : {"there", "./there", "link", "hard"}) {
    EXPECT_EQ(ren_check_output(folder.at(name).c_str(), 0, needed, 2), REN_ERROR_INVALID_ARGUMENT) << name;
    EXPECT_TRUE(says("there")) << ren_last_error_message();
  }
  EXPECT_OK(ren_check_output(folder.at("new").c_str(), 100, needed, 2));
  EXPECT_OK(ren_check_output(folder.at(std::string(250, 'n')).c_str(), 100, nullptr, 0));
  EXPECT_EQ(ren_check_output(folder.at(std::string(256, 'n')).c_str(), 100, nullptr, 0), REN_ERROR_IO);
  EXPECT_EQ(ren_check_output(folder.at("no/where").c_str(), 100, nullptr, 0), REN_ERROR_IO);
  EXPECT_EQ(ren_check_output(folder.at("new").c_str(), uint64_t{1} << 60, nullptr, 0), REN_ERROR_IO);
  EXPECT_TRUE(says("free")) << ren_last_error_message();
  EXPECT_EQ(content(there), "mine");
  EXPECT_FALSE(fs::exists(folder.at("new")));
}

TEST(Places, CheckpointsReplaceNothingThatIsNeeded) {
  const Folder folder;
  const std::string file = folder.at("net.onnx");
  fs::copy_file(example_model(), file);
  fs::create_symlink("net.onnx", folder.at("link"));
  const std::string before = content(file);
  const ModelPtr model = load_model(file);
  const TrainerPtr trainer = make_trainer(model, small_options());
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(8, 4);
  for (const char* name : {"net.onnx", "link"}) {
    const std::string path = folder.at(name);
    EXPECT_EQ(ren_trainer_checkpoint_save(trainer.get(), path.c_str()), REN_ERROR_INVALID_ARGUMENT);
    ren_fit_options fit = REN_FIT_OPTIONS_INIT;
    fit.checkpoint = path.c_str();
    EXPECT_EQ(ren_trainer_fit(trainer.get(), loader.get(), nullptr, &fit, nullptr, nullptr, nullptr),
              REN_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(says("the model's file")) << ren_last_error_message();
    // in place is an export's business
    EXPECT_OK(ren_check_output(path.c_str(), 0, nullptr, 0));
  }
  EXPECT_EQ(content(file), before);
  EXPECT_OK(ren_trainer_export(trainer.get(), file.c_str(), nullptr, nullptr));
  EXPECT_TRUE(fs::is_symlink(folder.at("link")));
}

TEST(Places, ACheckpointThatFailsIsToldAndTrainingGoesOn) {
  const Folder folder;
  const ModelPtr model = load_model();
  ren_trainer_options options = small_options();
  options.epochs = 3;
  const TrainerPtr trainer = make_trainer(model, options);
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(8, 4);
  fs::create_directory(folder.at("place"));
  const std::string file = folder.at("place/c");
  ren_fit_options fit = REN_FIT_OPTIONS_INIT;
  fit.checkpoint = file.c_str();
  struct Seen {
    std::string place, message;
    int64_t written = 0, failed = 0;
  } seen;
  seen.place = folder.at("place");
  const auto fn = [](void* user, const ren_progress* p) -> int32_t {
    auto& s = *static_cast<Seen*>(user);
    if (p->phase == REN_PHASE_CHECKPOINT) {
      ++s.written;
      fs::remove_all(s.place);
    }
    if (p->phase == REN_PHASE_CHECKPOINT_FAILED) {
      s.message = p->message;
      s.failed = p->failed_checkpoints;
    } else {
      EXPECT_EQ(p->message, nullptr);
    }
    return 0;
  };
  ren_progress result = REN_PROGRESS_INIT;
  EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, &fit, &result, fn, &seen));
  EXPECT_EQ(seen.written, 1);
  EXPECT_EQ(seen.failed, 2);
  EXPECT_EQ(result.failed_checkpoints, 2);
  EXPECT_NE(seen.message.find(file), std::string::npos) << seen.message;
  EXPECT_EQ(ren_trainer_fit(trainer.get(), loader.get(), nullptr, &fit, nullptr, nullptr, nullptr),
            REN_ERROR_IO);

  // A program of the first ABI has a shorter struct.
  ren_progress old = REN_PROGRESS_INIT;
  old.struct_size = offsetof(ren_progress, failed_checkpoints);
  old.failed_checkpoints = 77;
  EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, &old, nullptr, nullptr));
  EXPECT_EQ(old.failed_checkpoints, 77);
}

TEST(Places, ResumingComparesTheDataAtOnce) {
  const Folder folder;
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(8, 4), other = stream.loader(12, 4);
  const std::string file = folder.at("c");
  ren_fit_options fit = REN_FIT_OPTIONS_INIT;
  fit.checkpoint = file.c_str();
  const TrainerPtr first = make_trainer(model, small_options());
  ASSERT_OK(ren_trainer_fit(first.get(), loader.get(), nullptr, &fit, nullptr, nullptr, nullptr));
  ren_trainer_options options = small_options();
  options.weight_decay = 0.5;
  const TrainerPtr second = make_trainer(model, options);
  EXPECT_EQ(ren_trainer_resume(second.get(), other.get(), file.c_str()), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("weight_decay: is 0.5 now, the checkpoint has 0")) << ren_last_error_message();
  EXPECT_TRUE(says("data: samples: is 12 now, the checkpoint has 8")) << ren_last_error_message();
  const TrainerPtr third = make_trainer(model, small_options());
  EXPECT_OK(ren_trainer_resume(third.get(), loader.get(), file.c_str()));
}

// Two loaders, the second of another size.
TEST(Places, ATrainerIsNotReusedForPicturesOfAnotherSize) {
  const ModelPtr model = load_model();
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(8, 4);
  const TrainerPtr trainer = make_trainer(model, small_options());
  ASSERT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr));
  Stream larger{info_of(model)};
  larger.info.height *= 2;
  const LoaderPtr other = larger.loader(8, 4);
  ren_metrics metrics;
  EXPECT_EQ(ren_trainer_fit(trainer.get(), other.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("gives images of")) << ren_last_error_message();
  EXPECT_EQ(ren_trainer_evaluate(trainer.get(), other.get(), &metrics, nullptr, nullptr),
            REN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("gives images of")) << ren_last_error_message();
}

// While a callback holds fit up, another thread finds the handles in use; what may be called works.
TEST(InUse, ASecondCallIsRefused) {
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  Stream stream{info_of(model)};
  const LoaderPtr loader = stream.loader(8, 4);
  struct Meeting {
    ren_trainer* trainer;
    std::promise<void> inside, leave;
    int calls = 0;
  } meeting;
  meeting.trainer = trainer.get();
  const auto fn = [](void* user, const ren_progress*) -> int32_t {
    auto& m = *static_cast<Meeting*>(user);
    if (m.calls++ > 0) return 0;
    ren_position position = REN_POSITION_INIT;
    EXPECT_OK(ren_trainer_position(m.trainer, &position));
    EXPECT_EQ(ren_trainer_checkpoint_save(m.trainer, "/tmp/never"), REN_ERROR_INVALID_STATE);
    EXPECT_TRUE(says("of this thread")) << ren_last_error_message();
    m.inside.set_value();
    m.leave.get_future().wait();
    return 0;
  };
  std::thread user([&] {
    EXPECT_OK(ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, fn, &meeting));
  });
  meeting.inside.get_future().wait();
  const Pushed pushed(info_of(model), 4);
  ren_step_result result = REN_STEP_RESULT_INIT;
  ren_batch batch = REN_BATCH_INIT;
  ren_position position = REN_POSITION_INIT;
  ren_metrics metrics;
  const std::pair<const char*, int32_t> refused[] = {
      {"step", ren_trainer_step(trainer.get(), &pushed.batch, 0.1, &result)},
      {"evaluate_batch", ren_trainer_evaluate_batch(trainer.get(), &pushed.batch, &result)},
      {"evaluate", ren_trainer_evaluate(trainer.get(), loader.get(), &metrics, nullptr, nullptr)},
      {"fit", ren_trainer_fit(trainer.get(), loader.get(), nullptr, nullptr, nullptr, nullptr, nullptr)},
      {"position", ren_trainer_position(trainer.get(), &position)},
      {"save", ren_trainer_checkpoint_save(trainer.get(), "/tmp/never")},
      {"load", ren_trainer_checkpoint_load(trainer.get(), "/tmp/never")},
      {"export", ren_trainer_export(trainer.get(), "/tmp/never", nullptr, nullptr)},
      {"next", ren_loader_next(loader.get(), &batch)},
      {"start_epoch", ren_loader_start_epoch(loader.get(), 0, 0)}};
  for (const auto& [name, status] : refused) EXPECT_EQ(status, REN_ERROR_INVALID_STATE) << name;
  EXPECT_TRUE(says("in use")) << ren_last_error_message();
  EXPECT_FALSE(fs::exists("/tmp/never"));
  ren_loader_info info = REN_LOADER_INFO_INIT;
  EXPECT_OK(ren_loader_get_info(loader.get(), &info));
  ren_loader_statistics statistics = REN_LOADER_STATISTICS_INIT;
  EXPECT_OK(ren_loader_get_statistics(loader.get(), &statistics));
  EXPECT_EQ(statistics.threads, 1);  // a callback's
  char name[200];
  EXPECT_OK(ren_trainer_device_name(trainer.get(), name, sizeof name, nullptr));
  meeting.leave.set_value();
  user.join();
  EXPECT_OK(ren_trainer_step(trainer.get(), &pushed.batch, 0.1, &result));
}

TEST(Reports, AreWrittenWhole) {
  const Folder folder;
  const ModelPtr model = load_model();
  const TrainerPtr trainer = make_trainer(model, small_options());
  ren_report* report = nullptr;
  ASSERT_OK(ren_trainer_plan(trainer.get(), &report));
  const std::string page = folder.at("plan.html");
  EXPECT_OK(ren_report_write(report, REN_REPORT_HTML, page.c_str()));
  EXPECT_GT(content(page).size(), 1000u);
  EXPECT_OK(ren_report_write(report, REN_REPORT_JSON, folder.at("plan.json").c_str()));
  EXPECT_OK(ren_report_write(report, REN_REPORT_TEXT, folder.at("plan.txt").c_str()));
  EXPECT_EQ(ren_report_write(report, 3, page.c_str()), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ren_report_write(report, REN_REPORT_TEXT, folder.at("no/where").c_str()), REN_ERROR_IO);
  ren_report_destroy(report);
}

}  // namespace
}  // namespace ren::test
