// SPDX-License-Identifier: Apache-2.0
#include "importer/window.h"

namespace ren::importer {

namespace {

Dims positive(const NodeView& node, const char* name, size_t axes) {
  const Dims values = node.integers(name, Dims(axes, 1));
  if (values.size() != axes) contradict("{} {} for {} spatial axes", name, to_text(values), axes);
  for (const int64_t v : values)
    if (v < 1 || v > (1 << 20)) contradict("{} {} out of range", name, to_text(values));
  return values;
}

// SAME: ceil(size / stride) outputs; an odd pad goes to the end (UPPER) or the beginning (LOWER).
void same_pads(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, bool upper, int64_t& before,
               int64_t& after) {
  const int64_t outputs = (size + stride - 1) / stride;
  const int64_t total = std::max<int64_t>(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - size);
  before = upper ? total / 2 : total - total / 2;
  after = total - before;
}

}  // namespace

Window read_window(const NodeView& node, const Dims& kernel, const Shape& input, bool pooling) {
  const size_t axes = kernel.size();
  for (const int64_t k : kernel)
    if (k < 1 || k > (1 << 20)) contradict("kernel {} out of range", to_text(kernel));
  const Dims strides = positive(node, "strides", axes), dilations = positive(node, "dilations", axes);
  Dims pads = node.integers("pads", Dims(2 * axes, 0));
  if (pads.size() != 2 * axes) contradict("pads {} for {} spatial axes", to_text(pads), axes);
  for (const int64_t p : pads) {
    if (p < 0) refuse("crop with Slice instead", "pads {} are negative", to_text(pads));
    if (p > (1 << 20)) contradict("pads {} out of range", to_text(pads));
  }
  Window w;
  const size_t last = axes - 1;
  w.kernel_w = kernel[last];
  w.stride_w = strides[last];
  w.dilation_w = dilations[last];
  w.left = pads[last];
  w.right = pads[axes + last];
  if (axes == 2) {
    w.kernel_h = kernel[0];
    w.stride_h = strides[0];
    w.dilation_h = dilations[0];
    w.top = pads[0];
    w.bottom = pads[2];
  }
  const std::string mode = node.text("auto_pad", "NOTSET");
  if (mode == "VALID") {
    w.top = w.left = w.bottom = w.right = 0;
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    const bool upper = mode == "SAME_UPPER";
    same_pads(input.h, w.kernel_h, w.stride_h, w.dilation_h, upper, w.top, w.bottom);
    same_pads(input.w, w.kernel_w, w.stride_w, w.dilation_w, upper, w.left, w.right);
    w.same = true;
  } else if (mode != "NOTSET" && !mode.empty()) {
    contradict("auto_pad '{}' is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER", mode);
  }
  const int64_t need_h = (w.kernel_h - 1) * w.dilation_h + 1, need_w = (w.kernel_w - 1) * w.dilation_w + 1;
  if (!pooling && (input.h + w.top + w.bottom < need_h || input.w + w.left + w.right < need_w))
    contradict("the kernel of {} x {} is larger than the padded input of {} x {}", need_h, need_w,
               input.h + w.top + w.bottom, input.w + w.left + w.right);
  return w;
}

}  // namespace ren::importer
