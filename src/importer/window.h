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

}  // namespace ren::importer
