// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "engine/base/dtype.h"
#include "engine/ir/op.h"

namespace ren {

// What the plan must know of ops beyond "reads its inputs, writes its outputs". Both answers
// are promises of the kernels of that op, on every backend.

// An output may take the bytes of an operand of its own shape and type that dies at the node: the
// kernel has read all operands of an element before it stores any output of it. A reduction does so
// with what it stores in passing, always of 16 bits; its results are FP32.
constexpr bool may_run_in_place(Op op, DType output) {
  return op == Op::pointwise || (op == Op::reduce && is_16bit(output));
}

// False for an operand of which only the shape is looked at; its bytes may be gone by then.
constexpr bool reads_bytes(Op op, size_t input) {
  switch (op) {
    case Op::conv_backward_data:
    case Op::conv_backward_weights:
    case Op::max_pool_backward:
      return input != 2;
    case Op::average_pool_backward:
    case Op::pad_backward:
    case Op::slice_backward:
      return input != 1;
    default:
      return true;
  }
}

}  // namespace ren
