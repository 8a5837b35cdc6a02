// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "engine/base/status.h"
#include "engine/ops/support/onednn_cpu.h"

namespace ren::test {
namespace {

TEST(CpuDevice, DescribesItself) {
  const auto device = open_cpu_device();
  EXPECT_EQ(device->kind(), DeviceKind::cpu);
  EXPECT_EQ(device->name().rfind("cpu (", 0), 0u) << device->name();
  EXPECT_NE(device->name().find("thread"), std::string::npos) << device->name();
  EXPECT_GT(device->free_memory(), uint64_t{1} << 20);
}

TEST(CpuDevice, BlocksAreAlignedAndZeroed) {
  const auto device = open_cpu_device();
  const auto block = device->allocate(10000);
  EXPECT_EQ(block->bytes(), 10000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->base()) % 256, 0u);
  for (size_t i = 0; i < 10000; ++i) ASSERT_EQ(block->base()[i], std::byte{0});
#if !defined(__SANITIZE_ADDRESS__)  // which ends the process instead
  try {
    device->allocate(uint64_t{1} << 60);
    FAIL() << "2^60 bytes were given";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::out_of_memory);
  }
#endif
}

TEST(CpuDevice, TransfersArrive) {
  const auto device = open_cpu_device();
  const auto block = device->allocate(64);
  const std::array<int, 3> sent{1, 2, 3};
  std::array<int, 3> received{};
  device->upload(block->base(), sent.data(), sizeof sent);
  const uint64_t ticket = device->download(received.data(), block->base(), sizeof received);
  EXPECT_TRUE(device->ticket_done(ticket));
  EXPECT_EQ(received, sent);
}

TEST(CpuDevice, ProgramsRunTheirKernelsInOrder) {
  const auto device = open_cpu_device();
  std::vector<int> order;
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (int i = 0; i < 3; ++i) kernels.push_back(make_kernel([&order, i] { order.push_back(i); }));
  const auto program = device->make_program(std::move(kernels));
  program->run();
  program->run();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(CpuDevice, AKernelsFailureShowsOnceAtSynchronize) {
  CpuDevice device;
  EXPECT_NO_THROW(device.synchronize());
  device.report_failure("conv 'stem'", "out of memory");
  device.report_failure("conv 'other'", "a consequence");
  try {
    device.synchronize();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::device);
    EXPECT_STREQ(e.what(), "conv 'stem' failed: out of memory");
  }
  EXPECT_NO_THROW(device.synchronize());
}

// Stands in for a primitive descriptor with a list of implementations.
struct Implementations {
  std::vector<const char*> names;
  size_t at = 0;
  const char* impl_info_str() const { return names[at]; }
  bool next_impl() {
    if (at + 1 == names.size()) return false;
    ++at;
    return true;
  }
};

TEST(OneDnn, ReferenceLoopsAreRefused) {
  Implementations mixed{{"ref:any", "gemm:jit"}};
  choose_implementation(mixed, 1e12, "a convolution");
  EXPECT_STREQ(mixed.impl_info_str(), "gemm:jit");

  Implementations slow{{"ref:any"}};
  EXPECT_NO_THROW(choose_implementation(slow, 1000, "a convolution"));  // nobody would notice
  try {
    choose_implementation(slow, 1e9, "a convolution of x by w");
    FAIL() << "a slow path was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::unsupported);
    EXPECT_NE(std::string(e.what()).find("a convolution of x by w"), std::string::npos);
  }
}

}  // namespace
}  // namespace ren::test
