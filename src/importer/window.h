// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "importer/import_context.h"

namespace ren::importer {

// The window attributes that convolution and pooling share. One spatial axis lies in W.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool same = false;  // auto_pad chose the pads
};

// strides, dilations, pads and auto_pad; kernel has one or two extents.
Window read_window(const NodeView& node, const Dims& kernel, const Shape& input, bool pooling);

// What convolution and pooling attributes have in common.
template <typename Attributes>
void set_window(Attributes& attributes, const Window& window) {
  attributes.stride_h = window.stride_h;
  attributes.stride_w = window.stride_w;
  attributes.dilation_h = window.dilation_h;
  attributes.dilation_w = window.dilation_w;
  attributes.pad_top = window.top;
  attributes.pad_left = window.left;
  attributes.pad_bottom = window.bottom;
  attributes.pad_right = window.right;
}

}  // namespace ren::importer
