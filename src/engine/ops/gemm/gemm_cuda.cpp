// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/gemm/gemm.h"

#include <cstring>
#include <optional>

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/launch.h"

namespace ren {
namespace {

using namespace cuda;
constexpr int kThreads = 256;
constexpr size_t kMostWorkspace = 32 << 20;  // what the library's own guide gives Hopper
constexpr size_t kAlgorithmWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(int64_t);
// NodeChoice: the knobs are the form, whether TF32 is allowed, and the library's algorithm.
enum Form : int64_t { kDirect, kLibrary };
constexpr size_t kAlgorithmKnob = 2;

struct Problem {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  float alpha = 1;
  DType type = DType::f32, out = DType::f32, bias_type = DType::f32;
  bool tf32 = false;  // FP32 operands may be rounded to 11 bits
  // The library's epilogue takes a bias in the output's type only.
  bool fused_bias() const { return bias && bias_type == out; }
};

Problem problem_of(const Graph& graph, const Node& node, bool tf32) {
  const auto& attributes = node.as<GemmAttributes>();
  const Tensor &a = graph.at(node.inputs[0]), &b = graph.at(node.inputs[1]);
  Problem p;
  p.transpose_a = attributes.transpose_a;
  p.transpose_b = attributes.transpose_b;
  p.alpha = attributes.alpha;
  p.rows = p.transpose_a ? a.shape.c : a.shape.pixels();
  p.inner = p.transpose_a ? a.shape.pixels() : a.shape.c;
  p.columns = p.transpose_b ? b.shape.pixels() : b.shape.c;
  p.type = a.dtype;
  p.tf32 = tf32 && a.dtype == DType::f32;
  p.out = graph.at(node.outputs[0]).dtype;
  require(b.dtype == a.dtype, "{}: a product of {} and {}", node.name, name_of(a.dtype), name_of(b.dtype));
  if (node.inputs.size() > 2 && node.inputs[2] != kNoTensor) {
    p.bias = true;
    p.bias_type = graph.at(node.inputs[2]).dtype;
  }
  return p;
}

KernelSource specialise(const Problem& p) {
  KernelSource source("gemm.cu");
  source.index_type(std::max({p.rows * p.columns, p.rows * p.inner, p.columns * p.inner}))
      .define("X", p.type)
      .define("Y", p.out)
      .define("B", p.bias ? p.bias_type : p.out)
      .define("ROWS", p.rows)
      .define("COLUMNS", p.columns)
      .define("INNER", p.inner)
      .define("TRANSPOSE_A", int64_t{p.transpose_a})
      .define("TRANSPOSE_B", int64_t{p.transpose_b})
      .define("ALPHA", p.alpha);
  return source;
}

cudaDataType_t library_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      fail(StatusCode::internal, "no matrix product of {}", name_of(type));
  }
}

// The library's descriptors of one product. It stores matrices by columns, so our row-major y is its
// transposed one: y^T [columns, rows] = op(b)^T op(a)^T, b first.
class Description {
 public:
  explicit Description(const Problem& p) {
    const cublasComputeType_t arithmetic = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    REN_CUDA_CHECK(cublasLtMatmulDescCreate(&operation_, arithmetic, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.fused_bias()) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    layout(b_, p.type, p.transpose_b ? p.inner : p.columns, p.transpose_b ? p.columns : p.inner);
    layout(a_, p.type, p.transpose_a ? p.rows : p.inner, p.transpose_a ? p.inner : p.rows);
    layout(y_, p.out, p.columns, p.rows);
  }
  ~Description() {
    for (const cublasLtMatrixLayout_t layout : {a_, b_, y_})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation_) cublasLtMatmulDescDestroy(operation_);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  void set_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  std::optional<cublasLtMatmulHeuristicResult_t> first_algorithm(cublasLtHandle_t handle) const {
    cublasLtMatmulPreference_t preference = nullptr;
    REN_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t workspace = kMostWorkspace;
    // Partial sums only as FP32 in the workspace.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof reductions);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation_, b_, a_, y_, y_, preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return {};
    return result;
  }

  void run(cublasLtHandle_t handle, float alpha, const void* a, const void* b, void* y,
           const cublasLtMatmulAlgo_t& algorithm, void* workspace, size_t workspace_bytes,
           cudaStream_t stream) const {
    const float beta = 0;
    REN_CUDA_CHECK(cublasLtMatmul(handle, operation_, &alpha, b, b_, a, a_, &beta, y, y_, y, y_, &algorithm,
                                  workspace, workspace_bytes, stream));
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    REN_CUDA_CHECK(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }
  static void layout(cublasLtMatrixLayout_t& target, DType type, int64_t rows, int64_t columns) {
    REN_CUDA_CHECK(
        cublasLtMatrixLayoutCreate(&target, library_type(type), uint64_t(rows), uint64_t(columns), rows));
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, y_ = nullptr;
};

NodeChoice prepare(const PrepareContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const Problem p = problem_of(context.graph, context.node, context.tf32);
  std::optional<cublasLtMatmulHeuristicResult_t> found;
  if (!device.compiles_only()) found = Description(p).first_algorithm(device.blas());
  NodeChoice choice{"own:direct", 0, {kDirect, p.tf32}};
  if (found) {
    choice = {"cublaslt", found->workspaceSize, {kLibrary, p.tf32}};
    choice.knobs.resize(kAlgorithmKnob + kAlgorithmWords);
    std::memcpy(&choice.knobs[kAlgorithmKnob], &found->algo, sizeof found->algo);
  }
  if (!found || (p.bias && !p.fused_bias())) device.kernels().request(specialise(p));
  return choice;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CudaDevice& device = cuda_device(context.device);
  const std::vector<int64_t>& knobs = context.choice.knobs;
  const Problem p = problem_of(context.graph, context.node, knobs.at(1) != 0);
  std::byte *a = context.inputs[0], *b = context.inputs[1], *y = context.outputs[0];
  std::byte* bias = p.bias ? context.inputs[2] : nullptr;
  const Grid grid = grid_for(device, p.rows * p.columns, kThreads);
  auto list = std::make_unique<LaunchList>(device);
  if (knobs[0] == kDirect) {
    list->kernel(device.kernels().request(specialise(p)), "gemm", grid, {kThreads}, a, b, bias, y);
    return list;
  }
  require(knobs.size() == kAlgorithmKnob + kAlgorithmWords, "{}: a choice without its algorithm",
          context.node.name);
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, &knobs[kAlgorithmKnob], sizeof algorithm);
  auto description = std::make_shared<Description>(p);
  if (p.fused_bias()) description->set_bias(bias);
  list->call([&device, description, algorithm, alpha = p.alpha, a, b, y, workspace = context.workspace,
              bytes = size_t(context.choice.workspace_bytes)] {
    description->run(device.blas(), alpha, a, b, y, algorithm, workspace, bytes, device.stream());
  });
  if (p.bias && !p.fused_bias())
    list->kernel(device.kernels().request(specialise(p)), "add_bias", grid, {kThreads}, y, bias);
  return list;
}

}  // namespace

const OpBackend& gemm_cuda() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
