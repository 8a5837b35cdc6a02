// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "renaissance_c.h"

namespace ren::test {

inline std::string example_model() {
  return std::string(REN_SOURCE_DIR) + "/examples/quickstart/shapes_cnn.onnx";
}
inline std::string parity_file(const std::string& name) {
  return std::string(REN_FIXTURES) + "/parity/" + name;
}

// Gone when the test ends.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/ren-capi-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct ModelDelete {
  void operator()(ren_model* m) const { ren_model_destroy(m); }
};
struct TrainerDelete {
  void operator()(ren_trainer* t) const { ren_trainer_destroy(t); }
};
struct LoaderDelete {
  void operator()(ren_loader* l) const { ren_loader_destroy(l); }
};
using ModelPtr = std::unique_ptr<ren_model, ModelDelete>;
using TrainerPtr = std::unique_ptr<ren_trainer, TrainerDelete>;
using LoaderPtr = std::unique_ptr<ren_loader, LoaderDelete>;

#define EXPECT_OK(call) EXPECT_EQ(call, REN_OK) << ren_last_error_message()
#define ASSERT_OK(call) ASSERT_EQ(call, REN_OK) << ren_last_error_message()

inline ModelPtr load_model(const std::string& path = example_model()) {
  ren_model* model = nullptr;
  EXPECT_OK(ren_model_load(path.c_str(), nullptr, &model));
  return ModelPtr(model);
}

inline ren_model_info info_of(const ModelPtr& model) {
  ren_model_info info = REN_MODEL_INFO_INIT;
  EXPECT_OK(ren_model_get_info(model.get(), &info));
  return info;
}

inline TrainerPtr make_trainer(const ModelPtr& model, ren_trainer_options options) {
  ren_trainer* trainer = nullptr;
  EXPECT_OK(ren_trainer_create(model.get(), &options, &trainer));
  return TrainerPtr(trainer);
}

inline ren_trainer_options small_options() {
  ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
  options.batch = 4;
  options.image_type = REN_IMAGE_FLOAT32;
  options.learning_rate = 0.05;
  options.momentum = 0.9;
  return options;
}

// A few made-up pictures with labels, in memory of its own.
struct Pushed {
  std::vector<float> images;
  std::vector<int32_t> labels;
  ren_batch batch = REN_BATCH_INIT;

  Pushed(const ren_model_info& info, int64_t count, uint32_t seed = 1) {
    uint32_t state = seed;
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    images.resize(size_t(count * info.channels * info.height * info.width));
    for (float& v : images) v = float(next() % 1000) / 1000.0f;
    labels.resize(size_t(count));
    for (int32_t& l : labels) l = int32_t(next() % 10);
    batch.image_type = REN_IMAGE_FLOAT32;
    batch.count = count;
    batch.channels = info.channels;
    batch.height = info.height;
    batch.width = info.width;
    batch.images = images.data();
    batch.labels = labels.data();
    batch.label_count = labels.size();
  }
};

// A stream of made-up pictures.
struct Stream {
  ren_model_info info;
  int64_t calls = 0, fail_at = -1;

  static int32_t fill(void* user, int64_t epoch, int64_t first, int64_t count, void* images,
                      int32_t* labels) {
    auto& self = *static_cast<Stream*>(user);
    if (self.calls++ == self.fail_at) return 7;
    const int64_t size = self.info.channels * self.info.height * self.info.width;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t state = uint32_t(epoch * 7919 + first + i + 1);
      for (int64_t k = 0; k < size; ++k)
        static_cast<float*>(images)[i * size + k] =
            float((state = state * 1664525u + 1013904223u) >> 20) / 4096.0f;
      labels[i] = int32_t((first + i) % 10);
    }
    return 0;
  }

  LoaderPtr loader(int64_t samples, int64_t batch) {
    ren_source_options options = REN_SOURCE_OPTIONS_INIT;
    options.image_type = REN_IMAGE_FLOAT32;
    options.samples = samples;
    options.batch = batch;
    options.channels = info.channels;
    options.height = info.height;
    options.width = info.width;
    ren_loader* loader = nullptr;
    EXPECT_OK(ren_loader_create_from_callback(&options, &loader, fill, this));
    return LoaderPtr(loader);
  }
};

inline std::vector<float> tensor_of(ren_trainer* trainer, const char* name, int32_t kind) {
  size_t needed = 0;
  EXPECT_OK(ren_trainer_tensor_get(trainer, name, kind, nullptr, 0, &needed));
  std::vector<float> values(needed);
  EXPECT_OK(ren_trainer_tensor_get(trainer, name, kind, values.data(), values.size(), nullptr));
  return values;
}

// The name of a model's k-th tensor with that role.
inline std::string tensor_name(const ModelPtr& model, int32_t role, int skip = 0) {
  const int64_t count = info_of(model).tensors;
  for (int64_t i = 0; i < count; ++i) {
    ren_tensor_info info = REN_TENSOR_INFO_INIT;
    EXPECT_OK(ren_model_tensor_info(model.get(), i, &info));
    if (info.role != role || skip-- > 0) continue;
    char name[256];
    EXPECT_OK(ren_model_tensor_name(model.get(), i, name, sizeof name, nullptr));
    return name;
  }
  ADD_FAILURE() << "no tensor of role " << role;
  return {};
}

}  // namespace ren::test
