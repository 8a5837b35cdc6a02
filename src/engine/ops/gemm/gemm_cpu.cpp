// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/support/onednn_cpu.h"

namespace ren {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using DataType = dnnl::memory::data_type;

// A row-major matrix of `rows` x `columns`, or the transpose of the one that lies in memory.
Desc matrix(int64_t rows, int64_t columns, bool transposed, DataType type) {
  return {{rows, columns}, type, transposed ? Dims{1, rows} : Dims{columns, 1}};
}

OneDnnPlan plan_in(CpuDevice& device, const Graph& graph, const Node& node, DataType type) {
  const auto& a = node.as<GemmAttributes>();
  const Tensor &left = graph.at(node.inputs[0]), &right = graph.at(node.inputs[1]),
               &out = graph.at(node.outputs[0]);
  const GemmExtents e = gemm_extents(a, left.shape, right.shape);
  const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoTensor;
  const DataType out_type = out.dtype == DType::f32 ? DataType::f32 : type;
  const Desc l = matrix(e.rows, e.inner, a.transpose_a, type),
             r = matrix(e.inner, e.columns, a.transpose_b, type);
  const Desc y = matrix(e.rows, e.columns, false, out_type),
             bias = matrix(1, e.columns, false, DataType::f32);

  // alpha scales the product and not the bias, so the bias then follows it as a post-op.
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const bool late_bias = has_bias && a.alpha != 1.0f;
  if (a.alpha != 1.0f) {
    dnnl::post_ops operations;
    operations.append_eltwise(dnnl::algorithm::eltwise_linear, a.alpha, 0.0f);
    if (late_bias) operations.append_binary(dnnl::algorithm::binary_add, bias);
    attributes.set_post_ops(operations);
  }
  dnnl::matmul::primitive_desc pd =
      has_bias && !late_bias ? dnnl::matmul::primitive_desc(device.engine(), l, r, bias, y, attributes)
                             : dnnl::matmul::primitive_desc(device.engine(), l, r, y, attributes);
  const std::string what =
      fmt::format("a product of {}x{} and {}x{} ({})", e.rows, e.inner, e.inner, e.columns, a.text());
  choose_implementation(pd, double(e.rows) * double(e.inner) * double(e.columns), what);

  OneDnnPlan plan(device, fmt::format("gemm '{}'", node.name));
  plan.operands.push_back({DNNL_ARG_SRC, false, left.dtype, l, pd.src_desc(), nullptr});
  plan.operands.push_back({DNNL_ARG_WEIGHTS, false, right.dtype, r, pd.weights_desc(), nullptr});
  plan.operands.push_back({DNNL_ARG_DST, true, out.dtype, y, pd.dst_desc(), nullptr});
  if (has_bias)
    plan.operands.push_back({late_bias ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS,
                             false, graph.at(node.inputs[2]).dtype, bias, bias, nullptr});
  plan.description = pd;
  return plan;
}

OneDnnPlan plan_of(CpuDevice& device, const Graph& graph, const Node& node) {
  CpuDevice::use_compute_threads();
  const DType left = graph.at(node.inputs[0]).dtype, right = graph.at(node.inputs[1]).dtype;
  const DType out = graph.at(node.outputs[0]).dtype;
  if (left == right && is_16bit(left) && (out == left || out == DType::f32) && onednn_computes(left)) try {
      OneDnnPlan native = plan_in(device, graph, node, onednn_type(left));
      if (!is_reference(native.description.impl_info_str())) return native;
    } catch (const dnnl::error&) {
      // Not offered for this shape: FP32 is.
    }
  try {
    return plan_in(device, graph, node, DataType::f32);
  } catch (const dnnl::error& e) {
    fail(StatusCode::unsupported, "oneDNN has no product of {} and {}: {}",
         to_string(graph.at(node.inputs[0]).shape), to_string(graph.at(node.inputs[1]).shape), e.what());
  }
}

NodeChoice prepare(const PrepareContext& context) {
  return plan_of(static_cast<CpuDevice&>(context.device), context.graph, context.node).choice();
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  OneDnnPlan plan = plan_of(static_cast<CpuDevice&>(context.device), context.graph, context.node);
  plan.operands[0].address = context.inputs[0];
  plan.operands[1].address = context.inputs[1];
  plan.operands[2].address = context.outputs[0];
  if (plan.operands.size() > 3) plan.operands[3].address = context.inputs[2];
  return plan.bind(context.workspace);
}

}  // namespace

const OpBackend& gemm_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
