// SPDX-License-Identifier: Apache-2.0
// Packing and inspecting through the C API: progress, stopping, reports, refusals.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "renaissance_c.h"

namespace {

namespace fs = std::filesystem;

class Jobs : public ::testing::Test {
 protected:
  Jobs() {
    std::string pattern = (fs::temp_directory_path() / "ren-jobs-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (const char* name : {"a", "b"})
      for (int i = 0; i < 5; ++i) {
        fs::create_directories(path(std::string("data/") + name));
        fs::copy_file(REN_FIXTURES "/data/rgb.png",
                      path("data/" + std::string(name) + "/" + std::to_string(i) + ".png"));
      }
    EXPECT_EQ(ren_dataset_open(path("data").c_str(), nullptr, &data_), REN_OK);
  }
  ~Jobs() override {
    ren_dataset_destroy(data_);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& below) const { return folder_ + "/" + below; }

  static nlohmann::json take(ren_report* report, int32_t* passed = nullptr) {
    size_t needed = 0;
    EXPECT_EQ(ren_report_json(report, nullptr, 0, &needed), REN_OK);
    std::string text(needed, '\0');
    EXPECT_EQ(ren_report_json(report, text.data(), text.size(), nullptr), REN_OK);
    if (passed != nullptr) ren_report_passed(report, passed);
    ren_report_destroy(report);
    return nlohmann::json::parse(text.c_str());
  }

  std::string folder_;
  ren_dataset* data_ = nullptr;
};

struct Seen {
  std::vector<int32_t> phases;
  std::string messages;
  int64_t stop_at = -1;
};

int32_t watch(void* user, const ren_job_progress* p) {
  auto* const seen = static_cast<Seen*>(user);
  EXPECT_EQ(p->struct_size, sizeof(ren_job_progress));
  EXPECT_EQ(p->total, 10);
  EXPECT_LE(p->done, p->total);
  if (seen->phases.empty() || seen->phases.back() != p->phase) seen->phases.push_back(p->phase);
  if (p->message != nullptr) seen->messages += p->message;
  return p->phase == REN_JOB_PACKING && p->done == seen->stop_at ? 1 : 0;
}

TEST_F(Jobs, PackTellsStopsAndGoesOn) {
  const std::string out = path("a.dts");
  Seen stopped;
  stopped.stop_at = 4;
  ren_report* report = nullptr;
  EXPECT_EQ(ren_dataset_pack(data_, out.c_str(), nullptr, &report, watch, &stopped), REN_ERROR_CANCELLED);
  EXPECT_EQ(report, nullptr);
  EXPECT_NE(std::string(ren_last_error_message()).find("4 pictures packed so far"), std::string::npos);
  Seen whole;
  ASSERT_EQ(ren_dataset_pack(data_, out.c_str(), nullptr, &report, watch, &whole), REN_OK);
  EXPECT_EQ(whole.phases, (std::vector<int32_t>{REN_JOB_READING_PART, REN_JOB_PACKING, REN_JOB_VERIFYING}));
  EXPECT_NE(whole.messages.find("has 4 of the 10 pictures"), std::string::npos) << whole.messages;
  const auto json = take(report);
  EXPECT_EQ(json["pictures"], 10);
  EXPECT_EQ(json["continued"], 4);
  ASSERT_EQ(ren_dataset_pack(data_, out.c_str(), nullptr, nullptr, nullptr, nullptr), REN_OK);
  ren_dataset* packed = nullptr;
  ASSERT_EQ(ren_dataset_open(out.c_str(), nullptr, &packed), REN_OK);
  int64_t size = 0;
  EXPECT_EQ(ren_dataset_size(packed, "train", &size), REN_OK);
  EXPECT_EQ(size, 10);
  ren_dataset_destroy(packed);
}

TEST_F(Jobs, PackRefusesBadOptions) {
  const auto refused = [&](auto change) {
    ren_pack_options o = REN_PACK_OPTIONS_INIT;
    change(o);
    EXPECT_EQ(ren_dataset_pack(data_, path("a.dts").c_str(), &o, nullptr, nullptr, nullptr),
              REN_ERROR_INVALID_ARGUMENT);
    EXPECT_FALSE(fs::exists(path("a.dts.part")));
  };
  refused([](ren_pack_options& o) { o.short_side = -1; });
  refused([](ren_pack_options& o) { o.short_side = 65501; });
  refused([](ren_pack_options& o) { o.quality = 101; });
  refused([](ren_pack_options& o) { o.quality = -1; });
  refused([](ren_pack_options& o) { o.threads = 1025; });
  refused([](ren_pack_options& o) { o.bad_files = REN_BAD_FILES_REPLACE; });
  refused([](ren_pack_options& o) { o.struct_size = 3; });
}

TEST_F(Jobs, ReservedFieldsAreZero) {
  ren_pack_options pack = REN_PACK_OPTIONS_INIT;
  pack.reserved0 = 1;
  EXPECT_EQ(ren_dataset_pack(data_, path("a.dts").c_str(), &pack, nullptr, nullptr, nullptr),
            REN_ERROR_UNSUPPORTED);
  EXPECT_FALSE(fs::exists(path("a.dts.part")));
  ren_inspect_options inspect = REN_INSPECT_OPTIONS_INIT;
  inspect.reserved0 = 1;
  ren_report* report = nullptr;
  EXPECT_EQ(ren_dataset_inspect(data_, &inspect, &report, nullptr, nullptr), REN_ERROR_UNSUPPORTED);
}

TEST_F(Jobs, InspectFindsWhatIsBroken) {
  std::ofstream(path("data/b/3.png")) << "no picture";
  ren_report* report = nullptr;
  Seen seen;
  ASSERT_EQ(ren_dataset_inspect(data_, nullptr, &report, watch, &seen), REN_OK);
  EXPECT_EQ(seen.phases, (std::vector<int32_t>{REN_JOB_INSPECTING}));
  int32_t passed = 1;
  const auto json = take(report, &passed);
  EXPECT_EQ(passed, 0);
  EXPECT_EQ(json["broken_files"], 1);
  EXPECT_EQ(json["broken"][0]["path"], path("data/b/3.png"));
  EXPECT_EQ(json["formats"]["PNG"], 9);
  EXPECT_EQ(json["classes"][1]["pictures"]["all"], 5);
  ren_inspect_options o = REN_INSPECT_OPTIONS_INIT;
  o.quick = 2;
  EXPECT_EQ(ren_dataset_inspect(data_, &o, &report, nullptr, nullptr), REN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Jobs, LoadersTellWhereTheirTimeGoes) {
  ren_loader_options o = REN_LOADER_OPTIONS_INIT;
  o.channels = 3, o.height = o.width = 8, o.batch = 4, o.threads = 2, o.prefetch = 1;
  ren_loader* loader = nullptr;
  ASSERT_EQ(ren_loader_create(data_, "train", &o, &loader), REN_OK);
  ren_loader_statistics s = REN_LOADER_STATISTICS_INIT;
  ASSERT_EQ(ren_loader_get_statistics(loader, &s), REN_OK);
  EXPECT_EQ(s.threads, 2);
  EXPECT_EQ(s.batches + s.pictures + s.bytes_read, 0);
  ASSERT_EQ(ren_loader_start_epoch(loader, 0, 0), REN_OK);
  ren_batch batch = REN_BATCH_INIT;
  while (ren_loader_next(loader, &batch) == REN_OK) {
  }
  ASSERT_EQ(ren_loader_get_statistics(loader, &s), REN_OK);
  EXPECT_EQ(s.batches, 3);
  EXPECT_GE(s.pictures, 10);
  EXPECT_GE(s.pictures_read, 10);
  EXPECT_GE(s.bytes_read, 10 * int64_t(fs::file_size(REN_FIXTURES "/data/rgb.png")));
  EXPECT_GT(s.read_seconds, 0);
  EXPECT_GT(s.decode_seconds, 0);
  EXPECT_GT(s.transform_seconds, 0);
  EXPECT_GT(s.cpu_seconds, 0);
  EXPECT_GE(s.wait_seconds, 0);
  s.struct_size = 8;
  EXPECT_EQ(ren_loader_get_statistics(loader, &s), REN_ERROR_INVALID_ARGUMENT);
  ren_loader_destroy(loader);
}

TEST_F(Jobs, LoadersOfOlderProgramsDecodeExactly) {
  ren_loader_options o = REN_LOADER_OPTIONS_INIT;
  o.channels = 3, o.height = o.width = 8;
  o.decode = REN_DECODE_FAST;
  ren_loader* loader = nullptr;
  ASSERT_EQ(ren_loader_create(data_, "train", &o, &loader), REN_OK);
  ren_loader_destroy(loader);
  for (const int32_t wrong : {-1, 2}) {
    o.decode = wrong;
    EXPECT_EQ(ren_loader_create(data_, "train", &o, &loader), REN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ren_last_error_message()).find("decode"), std::string::npos);
  }
  o.struct_size = offsetof(ren_loader_options, decode);  // the first ABI's: what lies behind isn't looked at
  ASSERT_EQ(ren_loader_create(data_, "train", &o, &loader), REN_OK);
  ren_loader_destroy(loader);
}

TEST_F(Jobs, SheetReplacesNoPicture) {
  ren_loader_options o = REN_LOADER_OPTIONS_INIT;
  o.channels = 3, o.height = o.width = 8;
  const std::string picture = path("data/a/1.png");
  const auto size = fs::file_size(picture);
  EXPECT_EQ(ren_dataset_sheet(data_, "train", &o, picture.c_str()), REN_ERROR_INVALID_ARGUMENT);
  fs::create_symlink(picture, path("link.png"));
  EXPECT_EQ(ren_dataset_sheet(data_, "train", &o, path("link.png").c_str()), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(fs::file_size(picture), size);
  EXPECT_EQ(ren_dataset_sheet(data_, "test", &o, path("s.png").c_str()), REN_ERROR_NOT_FOUND);
  for (int i = 0; i < 2; ++i)  // a sheet is replaced
    EXPECT_EQ(ren_dataset_sheet(data_, "train", &o, path("s.png").c_str()), REN_OK)
        << ren_last_error_message();
  EXPECT_GT(fs::file_size(path("s.png")), 100u);
  std::ofstream(path("model.onnx")) << "no picture";
  EXPECT_EQ(ren_dataset_sheet(data_, "train", &o, path("model.onnx").c_str()), REN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(fs::file_size(path("model.onnx")), 10u);
}

}  // namespace
