// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "capi/support.h"

namespace ren::test {
namespace {

// Every size that each struct ever had, from the list that the layout tests keep, the smallest first.
std::map<std::string, std::vector<uint32_t>> historic_sizes() {
  std::map<std::string, std::vector<uint32_t>> sizes;
#define WAS(type, bytes) sizes[#type].push_back(bytes)
#define SIZE(type, bytes) sizes[#type].push_back(bytes)
#define AT(type, field, bytes)
#include "capi/abi.h"
#undef WAS
#undef SIZE
#undef AT
  sizes.erase("ren_metrics");       // has no size and never grows
  sizes.erase("ren_job_progress");  // only given by the library
  return sizes;
}

bool is_refused_for_its_size(int32_t status) {
  return status == REN_ERROR_INVALID_ARGUMENT &&
         std::string(ren_last_error_message()).find("struct_size") != std::string::npos;
}

// A struct as a program knows it that was built when it had `size` bytes: what lies behind isn't its own.
template <typename T>
class Old {
 public:
  Old(uint32_t size, const T& content) : size_(std::max<size_t>(size, sizeof size)) {
    std::memset(bytes_, kForeign, sizeof bytes_);
    std::memcpy(bytes_, &content, std::min<size_t>(size, sizeof content));
    std::memcpy(bytes_, &size, sizeof size);
  }
  T* get() { return reinterpret_cast<T*>(bytes_); }
  bool kept_what_is_not_its_own() const {
    return std::all_of(bytes_ + size_, bytes_ + sizeof bytes_, [](unsigned char b) { return b == kForeign; });
  }

 private:
  static constexpr unsigned char kForeign = 0x5a;
  size_t size_;  // of what is its own
  alignas(T) unsigned char bytes_[sizeof(T) + 64];
};

class StructSizes : public testing::Test {
 protected:
  // Calls what takes the struct. Status, and whether the memory behind it was left alone.
  using Call = std::function<int32_t(uint32_t size)>;

  template <typename T, typename Body>
  void add(const char* name, const T& content, Body&& body) {
    calls_[name] = [content, body](uint32_t size) {
      Old<T> old(size, content);
      const int32_t status = body(old.get());
      EXPECT_TRUE(old.kept_what_is_not_its_own()) << size;
      return status;
    };
  }

  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      std::filesystem::create_directories(pictures_ + "/" + name);
      std::filesystem::copy_file(REN_FIXTURES "/data/rgb.png", pictures_ + "/" + name + "/1.png");
    }
    ren_dataset* dataset = nullptr;
    ASSERT_OK(ren_dataset_open(pictures_.c_str(), nullptr, &dataset));
    dataset_.reset(dataset);
    add("ren_model_options", ren_model_options{}, [](const ren_model_options* o) {
      ren_model* made = nullptr;
      const int32_t status = ren_model_load(example_model().c_str(), o, &made);
      ren_model_destroy(made);
      return status;
    });
    add("ren_model_info", ren_model_info{},
        [this](ren_model_info* info) { return ren_model_get_info(model_.get(), info); });
    add("ren_output_info", ren_output_info{},
        [this](ren_output_info* info) { return ren_model_output_info(model_.get(), 0, info); });
    add("ren_tensor_info", ren_tensor_info{},
        [this](ren_tensor_info* info) { return ren_model_tensor_info(model_.get(), 0, info); });
    add("ren_export_options", ren_export_options{}, [this](const ren_export_options* o) {
      return ren_model_export(model_.get(), folder_.at("out.onnx").c_str(), o, nullptr);
    });
    add_data();
    add_training();
    ren_verify_options verify{};
    verify.device = "cpu";
    add("ren_verify_options", verify, [](const ren_verify_options* o) {
      ren_report* report = nullptr;
      const int32_t status = ren_verify(parity_file("two_heads.ts.onnx").c_str(),
                                        parity_file("two_heads.ts.golden.safetensors").c_str(), o, &report);
      ren_report_destroy(report);
      return status;
    });
  }

  void add_data() {
    add("ren_dataset_options", ren_dataset_options{}, [this](const ren_dataset_options* o) {
      ren_dataset* made = nullptr;
      const int32_t status = ren_dataset_open(pictures_.c_str(), o, &made);
      ren_dataset_destroy(made);
      return status;
    });
    ren_loader_options loading{};
    loading.channels = 3, loading.height = loading.width = 8, loading.batch = 2;
    add("ren_loader_options", loading, [this](const ren_loader_options* o) {
      ren_loader* made = nullptr;
      const int32_t status = ren_loader_create(dataset_.get(), "train", o, &made);
      ren_loader_destroy(made);
      return status;
    });
    add("ren_loader_info", ren_loader_info{},
        [this](ren_loader_info* info) { return ren_loader_get_info(loader_.get(), info); });
    add("ren_loader_statistics", ren_loader_statistics{},
        [this](ren_loader_statistics* s) { return ren_loader_get_statistics(loader_.get(), s); });
    add("ren_pack_options", ren_pack_options{}, [this](const ren_pack_options* o) {
      return ren_dataset_pack(dataset_.get(), folder_.at("set.dts").c_str(), o, nullptr, nullptr, nullptr);
    });
    add("ren_inspect_options", ren_inspect_options{}, [this](const ren_inspect_options* o) {
      ren_report* report = nullptr;
      const int32_t status = ren_dataset_inspect(dataset_.get(), o, &report, nullptr, nullptr);
      ren_report_destroy(report);
      return status;
    });
    ren_source_options source{};
    source.samples = source.batch = 4, source.channels = 3, source.height = source.width = 8;
    add("ren_source_options", source, [this](const ren_source_options* o) {
      ren_loader* made = nullptr;
      const int32_t status = ren_loader_create_from_callback(o, &made, Stream::fill, &stream_);
      ren_loader_destroy(made);
      return status;
    });
  }

  void add_training() {
    add("ren_trainer_options", small_options(), [this](const ren_trainer_options* o) {
      ren_trainer* made = nullptr;
      const int32_t status = ren_trainer_create(model_.get(), o, &made);
      ren_trainer_destroy(made);
      return status;
    });
    add("ren_batch", pushed_.batch,
        [this](const ren_batch* b) { return ren_trainer_step(trainer_.get(), b, 0.1, nullptr); });
    add("ren_step_result", ren_step_result{}, [this](ren_step_result* result) {
      return ren_trainer_step(trainer_.get(), &pushed_.batch, 0.1, result);
    });
    add("ren_progress", ren_progress{}, [this](ren_progress* result) {
      const TrainerPtr trainer = make_trainer(model_, small_options());
      return ren_trainer_fit(trainer.get(), loader_.get(), nullptr, nullptr, result, nullptr, nullptr);
    });
    add("ren_fit_options", ren_fit_options{}, [this](const ren_fit_options* o) {
      const TrainerPtr trainer = make_trainer(model_, small_options());
      return ren_trainer_fit(trainer.get(), loader_.get(), nullptr, o, nullptr, nullptr, nullptr);
    });
    add("ren_position", ren_position{},
        [this](ren_position* position) { return ren_trainer_position(trainer_.get(), position); });
    ren_bench_options bench{};
    bench.steps = bench.windows = bench.no_profile = 1;
    add("ren_bench_options", bench, [this](const ren_bench_options* o) {
      const ren_trainer_options options = small_options();
      ren_report* report = nullptr;
      const int32_t status = ren_bench_step(model_.get(), &options, o, &report);
      ren_report_destroy(report);
      return status;
    });
  }

  struct DatasetDelete {
    void operator()(ren_dataset* d) const { ren_dataset_destroy(d); }
  };

  const Folder folder_;
  const std::string pictures_ = folder_.at("pictures");
  const ModelPtr model_ = load_model();
  Stream stream_{info_of(model_)};
  const LoaderPtr loader_ = stream_.loader(8, 4);
  const TrainerPtr trainer_ = make_trainer(model_, small_options());
  Pushed pushed_{info_of(model_), 4};
  std::unique_ptr<ren_dataset, DatasetDelete> dataset_;
  std::map<std::string, Call> calls_;
};

TEST_F(StructSizes, OfEveryFormerVersionAreTaken) {
  for (const auto& [name, sizes] : historic_sizes()) {
    ASSERT_EQ(calls_.count(name), 1u) << "no call here takes a " << name;
    for (const uint32_t size : sizes)
      EXPECT_EQ(calls_[name](size), REN_OK) << name << " of " << size << ": " << ren_last_error_message();
  }
}

TEST_F(StructSizes, SmallerThanTheFirstAreRefused) {
  for (const auto& [name, sizes] : historic_sizes()) {
    ASSERT_EQ(calls_.count(name), 1u) << "no call here takes a " << name;
    for (const uint32_t size : {0u, 4u, sizes[0] - 1})
      EXPECT_TRUE(is_refused_for_its_size(calls_[name](size))) << name << " of " << size;
  }
}

}  // namespace
}  // namespace ren::test
