// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/backends.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/status.h"
#include "engine/ops/cuda_module.h"

namespace ren {
namespace {

TEST(Backends, TheCpuIsAlwaysThere) {
  EXPECT_EQ(find_backend(DeviceKind::cpu).kind, DeviceKind::cpu);
  const BackendReport report = report_backend(DeviceKind::cpu);
  EXPECT_TRUE(report.usable);
  EXPECT_NE(report.text.find("cpu"), std::string::npos);
}

TEST(Backends, TheFolderIsThisProgramsOwn) {
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(module_folder()) / "test_runtime"));
}

// With a module, whatever then fails is the machine's doing; without one its file is named.
TEST(Backends, WhyThereIsNoGpuIsSaid) {
  const BackendReport report = report_backend(DeviceKind::cuda);
  if (report.usable) GTEST_SKIP() << "there is one: " << report.text;
  const std::filesystem::path folder = module_folder();
  const bool installed = std::filesystem::exists(folder / kCudaModuleFile) ||
                         std::filesystem::exists(folder / ".." / "lib" / kCudaModuleFile);
  if (installed)
    EXPECT_EQ(report.text.find("this installation has no CUDA module"), std::string::npos) << report.text;
  else
    EXPECT_NE(report.text.find(kCudaModuleFile), std::string::npos) << report.text;
  EXPECT_FALSE(report_backend(DeviceKind::cuda).usable) << "a second question gets the same answer";
}

}  // namespace
}  // namespace ren
