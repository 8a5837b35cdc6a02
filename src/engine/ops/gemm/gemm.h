// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// y = alpha * op(a) op(b) + bias. a and b are matrices whose rows are the n*h*w and whose
// columns are the c of their shape; op transposes where the attribute says so.
// Inputs: a, b, bias [1,1,1,columns] or absent. Output: [rows...]: when a isn't transposed, a's n, h
// and w with c = columns of op(b); when it is, `out` (a weight gradient) gives the shape.
// A fully connected layer is gemm(x [N,1,1,I], w [O,1,1,I], transpose_b).
struct GemmAttributes final : Attributes {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1.0f;
  bool has_out = false;
  Shape out;  // the output's shape when has_out
  DType out_type = DType::f32;
  bool out_follows_a = true;  // the output's type is a's, unless false: then out_type
  std::string text() const override;
};

// The product's extents: op(a) is rows x inner, op(b) inner x columns.
struct GemmExtents {
  int64_t rows, columns, inner;
};
GemmExtents gemm_extents(const GemmAttributes& attributes, const Shape& a, const Shape& b);

}  // namespace ren
