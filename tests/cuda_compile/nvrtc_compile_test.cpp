// SPDX-License-Identifier: Apache-2.0
// Every kernel of our own compiles, in every specialisation that the GPU tests run, on machines
// that have no GPU.
#include <gtest/gtest.h>

#include <set>

#include "cuda/cases.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/straighten.h"
#include "engine/ops/cuda_module.h"
#include "engine/range/range.h"

extern "C" const ren::Backend* ren_cuda_backend(int abi);

namespace ren::test {
namespace {

class Compile : public testing::TestWithParam<int> {};

void request(Device& device, const Graph& graph, const Node& node) {
  const OpBackend* kernels = ren_cuda_backend(module_abi())->kernels(node.op);
  ASSERT_NE(kernels, nullptr) << name_of(node.op);
  kernels->prepare({graph, node, device});
}

void request_range(Device& device, Op op, AttributesPtr attributes) {
  Node node;
  node.op = op;
  node.attributes = std::move(attributes);
  request(device, {}, node);
}

TEST_P(Compile, EveryKernelForThisArchitecture) {
  cuda::CudaDevice device(cuda::CudaDevice::Target{GetParam() / 10, GetParam() % 10, 132});
  // A processor has to compile all of it: of the sizes, the first of an operation, and then those of one
  // type each in turn.
  size_t i = 0;
  std::set<std::string> seen;
  for (const CudaCase& test : cuda_cases()) {
    if (!seen.insert(test.name.substr(0, test.name.find(' '))).second && ++i % 7 != 0) continue;
    Case c;
    test.build(c);
    for (const Node& node : c.graph.nodes) request(device, c.graph, node);
  }
  for (const DType type : {DType::f16, DType::bf16}) {
    request_range(device, Op::range_cast, std::make_shared<RangeAttributes>(Region::W, Region::A, type));
    for (const bool momentum : {true, false}) {
      auto sgd = std::make_shared<OptimizerAttributes>();
      sgd->use_momentum = momentum, sgd->nesterov = momentum, sgd->has_copy = true, sgd->copy_type = type;
      request_range(device, Op::range_sgd, sgd);
      request_range(device, Op::range_lars, sgd);
    }
  }
  request_range(device, Op::range_sgd, std::make_shared<OptimizerAttributes>());
  request_range(device, Op::range_ema, std::make_shared<EmaAttributes>());
  request_range(device, Op::range_check_finite, std::make_shared<RangeAttributes>(Region::G, Region::G));
  request_range(device, Op::range_update_loss_scale, std::make_shared<LossScaleAttributes>());
  device.kernels().request(cuda::fill_source());
  const size_t count = device.kernels().compile_all();
  RecordProperty("kernels", int(count));
  EXPECT_GT(count, 20u);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Compile, testing::Values(80, 90));

TEST(Compile, AnErrorNamesTheFileAndTheLine) {
  try {
    cuda::compile_cubin("__global__ void kernel() { missing(); }", "broken.cu", "sm_90");
    FAIL() << "it compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::internal);
    EXPECT_NE(std::string(e.what()).find("broken.cu"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("missing"), std::string::npos);
  }
}

TEST(Compile, AModuleOfAnotherBuildIsRefused) {
  EXPECT_NE(ren_cuda_backend(module_abi()), nullptr);
  EXPECT_EQ(ren_cuda_backend(module_abi() + 1), nullptr);
}

}  // namespace
}  // namespace ren::test
