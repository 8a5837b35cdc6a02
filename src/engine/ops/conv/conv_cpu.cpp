// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/support/onednn_cpu.h"

namespace ren {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using DataType = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

// A node of the convolution family by role, whatever the order of its inputs and outputs.
struct Roles {
  TensorId x, w, y, bias;
};

Roles roles_of(const Node& node) {
  switch (node.op) {
    case Op::conv:
      return {node.inputs[0], node.inputs[1], node.outputs[0],
              node.inputs.size() > 2 ? node.inputs[2] : kNoTensor};
    case Op::conv_backward_data:
      return {node.outputs[0], node.inputs[1], node.inputs[0], kNoTensor};
    default:
      return {node.inputs[0], node.outputs[0], node.inputs[1], kNoTensor};
  }
}

Desc image(const Shape& s, DataType type, Tag tag) { return {{s.n, s.c, s.h, s.w}, type, tag}; }

Dims weight_extents(const Shape& w, int64_t groups) {
  if (groups == 1) return {w.n, w.c, w.h, w.w};
  return {groups, w.n / groups, w.c, w.h, w.w};
}

// KRSC as it lies in memory.
Desc stored_weights(const Shape& w, int64_t groups, DataType type) {
  const int64_t k = w.h * w.w * w.c, r = w.w * w.c;
  if (groups == 1) return {weight_extents(w, 1), type, Dims{k, 1, r, w.c}};
  return {weight_extents(w, groups), type, Dims{w.n / groups * k, k, 1, r, w.c}};
}

// A convolution as oneDNN is asked for it.
class Request {
 public:
  Request(CpuDevice& device, const Graph& graph, const Node& node)
      : device_(device), graph_(graph), node_(node), a_(node.as<ConvAttributes>()), roles_(roles_of(node)) {}

  // 16-bit operands are computed as they are where the processor can, else in FP32.
  OneDnnPlan plan() const {
    const DType x = type(roles_.x), y = type(roles_.y);
    const DType w = node_.op == Op::conv_backward_weights ? x : type(roles_.w);
    if (x == y && x == w && is_16bit(x) && onednn_computes(x)) try {
        OneDnnPlan native = plan_in(onednn_type(x));
        if (!is_reference(native.description.impl_info_str())) return native;
      } catch (const dnnl::error&) {
        // Not offered for this shape: FP32 is.
      }
    return plan_in(DataType::f32);
  }

 private:
  DType type(TensorId id) const { return graph_.at(id).dtype; }
  const Shape& shape(TensorId id) const { return graph_.at(id).shape; }

  std::string what() const {
    return fmt::format("{} of {} by {} ({})", name_of(node_.op), to_string(shape(roles_.x)),
                       to_string(shape(roles_.w)), a_.text());
  }

  double operations() const {
    return double(shape(roles_.y).elements()) * double(shape(roles_.w).elements()) /
           double(shape(roles_.w).n);
  }

  OneDnnPlan plan_in(DataType type) const try {
    OneDnnPlan plan(device_, fmt::format("{} '{}'", name_of(node_.op), node_.name));
    const auto forward = forward_description(type);
    switch (node_.op) {
      case Op::conv:
        plan_forward(plan, forward, type);
        break;
      case Op::conv_backward_data:
        plan_backward_data(plan, forward, type);
        break;
      default:
        plan_backward_weights(plan, forward, type);
    }
    return plan;
  } catch (const dnnl::error& e) {
    if (type != DataType::f32) throw;
    fail(StatusCode::unsupported, "oneDNN has no {}: {}", what(), e.what());
  }

  dnnl::primitive_attr attributes() const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  Desc any_weights(DataType type) const {
    return {weight_extents(shape(roles_.w), a_.groups), type, Tag::any};
  }
  Desc bias(DataType type) const {
    return roles_.bias == kNoTensor ? Desc() : Desc({shape(roles_.y).c}, type, Tag::x);
  }
  Dims strides() const { return {a_.stride_h, a_.stride_w}; }
  Dims dilations() const { return {a_.dilation_h - 1, a_.dilation_w - 1}; }
  Dims before() const { return {a_.pad_top, a_.pad_left}; }
  Dims after() const { return {a_.pad_bottom, a_.pad_right}; }

  dnnl::convolution_forward::primitive_desc forward_description(DataType type) const {
    return {device_.engine(),
            dnnl::prop_kind::forward_training,
            dnnl::algorithm::convolution_direct,
            image(shape(roles_.x), type, Tag::nhwc),
            any_weights(type),
            bias(DataType::f32),
            image(shape(roles_.y), type, Tag::nhwc),
            strides(),
            dilations(),
            before(),
            after(),
            attributes()};
  }

  void add(OneDnnPlan& plan, int argument, TensorId id, Desc stored, Desc wanted) const {
    const bool output = id == node_.outputs[0];
    plan.operands.push_back({argument, output, type(id), std::move(stored), std::move(wanted), nullptr});
  }

  void plan_forward(OneDnnPlan& plan, dnnl::convolution_forward::primitive_desc pd, DataType type) const {
    choose_implementation(pd, operations(), what());
    add(plan, DNNL_ARG_SRC, roles_.x, image(shape(roles_.x), type, Tag::nhwc), pd.src_desc());
    add(plan, DNNL_ARG_WEIGHTS, roles_.w, stored_weights(shape(roles_.w), a_.groups, type),
        pd.weights_desc());
    if (roles_.bias != kNoTensor) add(plan, DNNL_ARG_BIAS, roles_.bias, bias(DataType::f32), pd.bias_desc());
    add(plan, DNNL_ARG_DST, roles_.y, image(shape(roles_.y), type, Tag::nhwc), pd.dst_desc());
    plan.description = pd;
  }

  void plan_backward_data(OneDnnPlan& plan, const dnnl::convolution_forward::primitive_desc& forward,
                          DataType type) const {
    dnnl::convolution_backward_data::primitive_desc pd(
        device_.engine(), dnnl::algorithm::convolution_direct, image(shape(roles_.x), type, Tag::nhwc),
        any_weights(type), image(shape(roles_.y), type, Tag::nhwc), strides(), dilations(), before(), after(),
        forward, attributes());
    choose_implementation(pd, operations(), what());
    add(plan, DNNL_ARG_DIFF_DST, roles_.y, image(shape(roles_.y), type, Tag::nhwc), pd.diff_dst_desc());
    add(plan, DNNL_ARG_WEIGHTS, roles_.w, stored_weights(shape(roles_.w), a_.groups, type),
        pd.weights_desc());
    add(plan, DNNL_ARG_DIFF_SRC, roles_.x, image(shape(roles_.x), type, Tag::nhwc), pd.diff_src_desc());
    plan.description = pd;
  }

  // The gradient of the weights is FP32 whatever the operands are.
  void plan_backward_weights(OneDnnPlan& plan, const dnnl::convolution_forward::primitive_desc& forward,
                             DataType type) const {
    dnnl::convolution_backward_weights::primitive_desc pd(
        device_.engine(), dnnl::algorithm::convolution_direct, image(shape(roles_.x), type, Tag::nhwc),
        any_weights(DataType::f32), image(shape(roles_.y), type, Tag::nhwc), strides(), dilations(), before(),
        after(), forward, attributes());
    choose_implementation(pd, operations(), what());
    add(plan, DNNL_ARG_SRC, roles_.x, image(shape(roles_.x), type, Tag::nhwc), pd.src_desc());
    add(plan, DNNL_ARG_DIFF_DST, roles_.y, image(shape(roles_.y), type, Tag::nhwc), pd.diff_dst_desc());
    add(plan, DNNL_ARG_DIFF_WEIGHTS, roles_.w, stored_weights(shape(roles_.w), a_.groups, DataType::f32),
        pd.diff_weights_desc());
    plan.description = pd;
  }

  CpuDevice& device_;
  const Graph& graph_;
  const Node& node_;
  const ConvAttributes& a_;
  Roles roles_;
};

NodeChoice prepare(const PrepareContext& context) {
  const auto& attributes = context.node.as<ConvAttributes>();
  if (attributes.sums || attributes.padding_channels != 0)
    fail(StatusCode::unsupported, "a convolution with sums or padded images has no kernel on CPUs");
  CpuDevice::use_compute_threads();
  return Request(static_cast<CpuDevice&>(context.device), context.graph, context.node).plan().choice();
}

std::byte* address_of(const BindContext& context, TensorId id) {
  for (size_t i = 0; i < context.node.outputs.size(); ++i)
    if (context.node.outputs[i] == id) return context.outputs[i];
  for (size_t i = 0; i < context.node.inputs.size(); ++i)
    if (context.node.inputs[i] == id) return context.inputs[i];
  return nullptr;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  CpuDevice::use_compute_threads();
  OneDnnPlan plan = Request(static_cast<CpuDevice&>(context.device), context.graph, context.node).plan();
  const Roles roles = roles_of(context.node);
  for (OneDnnOperand& o : plan.operands) {
    const int a = o.argument;
    const bool is_x = a == DNNL_ARG_SRC || a == DNNL_ARG_DIFF_SRC, is_bias = a == DNNL_ARG_BIAS;
    const bool is_y = a == DNNL_ARG_DST || a == DNNL_ARG_DIFF_DST;
    o.address = address_of(context, is_x ? roles.x : is_y ? roles.y : is_bias ? roles.bias : roles.w);
  }
  return plan.bind(context.workspace);
}

const OpBackend kBackend{prepare, bind};

}  // namespace

const OpBackend& conv_cpu() { return kBackend; }
const OpBackend& conv_backward_data_cpu() { return kBackend; }
const OpBackend& conv_backward_weights_cpu() { return kBackend; }

}  // namespace ren
