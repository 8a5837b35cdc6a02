// SPDX-License-Identifier: Apache-2.0
// The engine allocates nothing while it trains: every malloc between step 2 and step 100 is caught and
// charged to the module that asked for it. oneDNN allocates its argument tables within its own library.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "../compile/small_models.h"
#include "engine/train/trainer.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<bool> g_watching{false};
std::atomic<int> g_ours{0}, g_others{0};
thread_local bool t_inside = false;
const char* g_program = nullptr;  // the file that holds the engine (linked statically into the test)
constexpr int kFrames = 24;
void* g_first[kFrames];  // call stack of the first allocation of ours

bool ends_in(const char* name, const char* part) { return std::strstr(name, part) != nullptr; }

// The first module up the stack that is no C or C++ runtime asked for the memory.
void record(const void* caller) {
  if (!g_watching || t_inside) return;
  Dl_info direct;  // most calls come straight from oneDNN; a walk up the stack costs far more
  if (dladdr(caller, &direct) != 0 && ends_in(direct.dli_fname, "libdnnl")) {
    ++g_others;
    return;
  }
  t_inside = true;
  void* frames[kFrames];
  const int depth = backtrace(frames, kFrames);
  for (int i = 2; i < depth; ++i) {  // 0 and 1: this function and the interposed one
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (ends_in(info.dli_fname, "libstdc++") || ends_in(info.dli_fname, "libc.so")) continue;
    if (std::strcmp(info.dli_fname, g_program) == 0) {
      if (g_ours++ == 0) std::memcpy(g_first, frames, sizeof g_first);
    } else {
      ++g_others;
    }
    break;
  }
  t_inside = false;
}

}  // namespace

extern "C" {
void* malloc(size_t n) {
  record(__builtin_return_address(0));
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  record(__builtin_return_address(0));
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  record(__builtin_return_address(0));
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t a, size_t n) {
  record(__builtin_return_address(0));
  return __libc_memalign(a, n);
}
int posix_memalign(void** p, size_t a, size_t n) {
  record(__builtin_return_address(0));
  *p = __libc_memalign(a, n);
  return *p == nullptr ? 12 : 0;
}
}

namespace ren {
namespace {

void train(Precision precision, MixSpec mix) {
  ModelState model;
  model.graph = test::residual_model(2);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const Parameter& p : model.graph.parameters) {
    model.parameters.emplace_back(size_t(p.shape.elements()));
    for (float& v : model.parameters.back()) v = 0.2f * normal(random);
  }
  for (const Buffer& b : model.graph.buffers)
    model.buffers.emplace_back(size_t(model.graph.at(b.value).shape.c), 1.0f);
  TrainerOptions options;
  options.spec.precision = precision;
  options.spec.mix = mix;
  options.spec.input.image_type = DType::f32;
  options.batch = 8;
  options.learning_rate = 0.01;
  Trainer trainer(std::move(model), options);
  std::vector<float> images(8 * 6 * 6 * 3, 0.3f);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0, 1, 2, 3};
  for (int step = 1; step <= 100; ++step) {
    if (step == 3) g_watching = true;
    trainer.step(images.data(), labels.data(), 8, 0.01);
  }
  g_watching = false;
}

class Allocation : public ::testing::TestWithParam<Precision> {};

TEST_P(Allocation, NoneBetweenStepTwoAndStepHundred) {
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&record), &info), 0);
  g_program = info.dli_fname;
  void* warm_up[2];
  backtrace(warm_up, 2);  // loads libgcc, which allocates once

  // The hook sees what it should: an allocation made here is charged to this program.
  g_ours = 0;
  g_watching = true;
  std::vector<int>* planted = new std::vector<int>(100);
  g_watching = false;
  EXPECT_EQ(g_ours, 2);
  delete planted;

  for (const MixSpec& mix : {MixSpec{}, MixSpec{0.2, 1.0}}) {
    g_ours = 0;
    train(GetParam(), mix);
    EXPECT_EQ(g_ours, 0);
    if (g_ours != 0) backtrace_symbols_fd(g_first, kFrames, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Allocation, ::testing::Values(Precision::fp32, Precision::fp16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace ren
