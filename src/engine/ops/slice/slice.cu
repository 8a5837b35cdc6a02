// SPDX-License-Identifier: Apache-2.0
// Evenly spaced pieces out of blocks of X_BLOCK accesses of U bytes: COUNT pieces of RUN accesses, the first
// at FIRST, STRIDE apart; together they are a block of the slice. A slice with step 1 is
// one piece.
constexpr index_t kSliceBlock = index_t(COUNT) * RUN;

extern "C" __global__ void __launch_bounds__(256) slice(const u8* __restrict__ x, u8* __restrict__ y) {
  const index_t first = index_t(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
  Vec<u8, U> values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const index_t e = first + i * 256;
    if (e >= OUTER * kSliceBlock) continue;
    const index_t block = e / kSliceBlock, j = e % kSliceBlock, piece = COUNT == 1 ? 0 : j / RUN;
    values[i] = Vec<u8, U>::load(x + uint64(block * X_BLOCK + FIRST + piece * STRIDE + (j - piece * RUN)) * U);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < OUTER * kSliceBlock) values[i].store(y + uint64(first + i * 256) * U);
}

// Zero where nothing was taken.
extern "C" __global__ void __launch_bounds__(256) slice_backward(const u8* __restrict__ dy, u8* __restrict__ dx) {
  const index_t first = index_t(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
  Vec<u8, U> values[ITEMS] = {};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const index_t e = first + i * 256;
    if (e >= index_t(OUTER) * X_BLOCK) continue;
    const index_t block = e / X_BLOCK, j = e % X_BLOCK;
    if (j < FIRST) continue;
    const index_t piece = COUNT == 1 ? 0 : (j - FIRST) / STRIDE, rest = j - FIRST - piece * STRIDE;
    if (piece < COUNT && rest < RUN)
      values[i] = Vec<u8, U>::load(dy + uint64(block * kSliceBlock + piece * RUN + rest) * U);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < index_t(OUTER) * X_BLOCK) values[i].store(dx + uint64(first + i * 256) * U);
}
