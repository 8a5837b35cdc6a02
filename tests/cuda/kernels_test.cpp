// SPDX-License-Identifier: Apache-2.0
// Every CUDA kernel against the double-precision references, over types and odd sizes, and again:
// results must repeat bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda/cases.h"
#include "cuda/run_cuda.h"

namespace ren::test {
namespace {

class CudaKernels : public testing::TestWithParam<CudaCase> {};

bool same(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

void compare(Device& device, const CudaCase& test, Chosen chosen) {
  Case c;
  test.build(c);
  const auto wanted = c.run_reference();
  DeviceTensors tensors(device, c);
  const BoundCase bound = bind_case(device, c, tensors, chosen);
  const auto run = [&] {
    tensors.write_inputs();
    for (const auto& kernel : bound.kernels) kernel->launch();
    device.synchronize();
    return tensors.read();
  };
  const auto found = run();
  // FP32 sums in any order; at most two roundings to the narrow type on the way (a bias added
  // behind a library's product). A sum of random terms is about sqrt(terms) large.
  // TF32 cuts both factors of a product off behind FP16's number of bits: each is off by up to 2^-10 of
  // itself.
  const double tolerance = sum_tolerance(test.terms) + 2 * type_tolerance(test.rounded) +
                           (chosen == Chosen::tf32 ? 4 * type_tolerance(DType::f16) : 0);
  const double scale = std::max(1.0, std::sqrt(double(test.terms)) / 3);
  for (size_t n = 0; n < c.graph.nodes.size(); ++n) {
    const Node& node = c.graph.nodes[n];
    std::vector<TensorId> changed = node.outputs;
    if (node.op == Op::batch_norm_statistics)
      changed.insert(changed.end(), node.inputs.begin() + 1, node.inputs.end());
    if (node.op == Op::batch_norm_from_sums)
      changed.insert(changed.end(), node.inputs.begin(), node.inputs.end());
    for (size_t k = 0; k < changed.size(); ++k)
      if (changed[k] != kNoTensor)
        expect_close(found.at(changed[k]), wanted.at(changed[k]), tolerance, scale,
                     fmt::format("{} ({}), output {}", name_of(node.op), bound.choices[n].engine, k));
  }
  // The library's sums in a convolution's epilogue may come in any order; a deterministic training has none.
  if (chosen == Chosen::measured && test.name.rfind("conv with sums", 0) == 0) return;
  for (int repetition = 0; repetition < 3; ++repetition) {
    const auto again = run();
    for (const auto& [id, values] : found)
      EXPECT_TRUE(same(values, again.at(id))) << c.graph.at(id).name << " differs in another run";
  }
}

TEST_P(CudaKernels, AgreeWithTheReference) {
  REN_NEED_GPU(device);
  compare(*device, GetParam(), Chosen::measured);
}

// Only convolutions and products have a choice.
void compare_chosen(const CudaCase& test, Chosen chosen) {
  if (test.name.rfind("conv", 0) != 0 && test.name.rfind("gemm", 0) != 0) return;
  REN_NEED_GPU(device);
  compare(*device, test, chosen);
}
TEST_P(CudaKernels, OurOwnBehindTheLibrariesToo) { compare_chosen(GetParam(), Chosen::own); }
TEST_P(CudaKernels, ThoseOfTf32Too) { compare_chosen(GetParam(), Chosen::tf32); }
TEST_P(CudaKernels, ThoseOfDeterministicTrainingToo) { compare_chosen(GetParam(), Chosen::deterministic); }

// A NaN beats all, and the first of equal values counts, even at minus infinity; in small windows, whose taps
// a thread has at once, and in large ones.
TEST(CudaPool, PutsNanFirstAndTakesTheFirstOfInfinities) {
  REN_NEED_GPU(device);
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    for (const int64_t kernel : {3, 5}) {
      const Shape s{1, 12, 12, 8};
      Values x = random_integers(s.elements(), 7, 4);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto pixel = int64_t(i) / s.c, h = pixel / s.w, w = pixel % s.w;
        if (h >= 6) x[i] = -std::numeric_limits<double>::infinity();
        if (h == 2 && w == int64_t(i) % s.c)
          x[i] = std::nan("");  // one a channel: which of two it is, is open
      }
      Case c;
      const auto out = c.add(Op::max_pool, {c.input("x", s, type, x)}, pool(kernel, 2, 1, false, false));
      const auto wanted = c.run_reference();
      DeviceTensors tensors(*device, c);
      const BoundCase bound = bind_case(*device, c, tensors, Chosen::measured);
      for (const auto& k : bound.kernels) k->launch();
      device->synchronize();
      const auto found = tensors.read();
      for (const TensorId id : out)
        EXPECT_TRUE(same(found.at(id), wanted.at(id))) << name_of(type) << ", kernel " << kernel;
    }
}

std::string test_name(const testing::TestParamInfo<CudaCase>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernels, testing::ValuesIn(cuda_cases()), test_name);

}  // namespace
}  // namespace ren::test
