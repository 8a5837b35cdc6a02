// SPDX-License-Identifier: Apache-2.0
// y += bias behind a matrix product whose epilogue can't, and the product itself where the library
// has no kernel. y [ROWS, COLUMNS], op(a) [ROWS, INNER], op(b) [INNER, COLUMNS].
extern "C" __global__ void __launch_bounds__(256) add_bias(Y* y, const B* bias) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t i = index_t(blockIdx.x) * 256 + threadIdx.x; i < index_t(ROWS) * COLUMNS; i += stride)
    store_one(y + i, load_one(y + i) + load_one(bias + i % COLUMNS));
}

extern "C" __global__ void __launch_bounds__(256) gemm(const X* a, const X* b, const B* bias, Y* y) {
  const index_t stride = index_t(gridDim.x) * 256;
  for (index_t i = index_t(blockIdx.x) * 256 + threadIdx.x; i < index_t(ROWS) * COLUMNS; i += stride) {
    const index_t m = i / COLUMNS, n = i % COLUMNS;
    Sum sum;
    for (index_t k = 0; k < INNER; ++k)
      sum.add(load_one(a + (TRANSPOSE_A ? k * ROWS + m : m * INNER + k)) *
              load_one(b + (TRANSPOSE_B ? n * INNER + k : k * COLUMNS + n)));
    store_one(y + i, ALPHA * sum.result() + (bias ? load_one(bias + n) : 0.0f));
  }
}
