// SPDX-License-Identifier: Apache-2.0
// Joins parts along one axis. Lengths are in accesses of U bytes: a part is runs of its own length, and each run
// has its place in a block of BLOCK accesses of the output.

#if TABLE
// Where an access of the output's first block comes from, and how far from there that of the next one does.
struct alignas(16) Origin {
  const u8* source;
  uint64 stride;
};

// Short runs: threads walk over the output, whose lines are then written whole.
extern "C" __global__ void __launch_bounds__(256)
    concat(const Origin* __restrict__ origins, u8* __restrict__ target) {
  const index_t first = index_t(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
  Vec<u8, U> values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const index_t e = first + i * 256;
    if (e >= TOTAL) continue;
    const Origin origin = origins[e % BLOCK];
    values[i] = Vec<u8, U>::load(origin.source + e / BLOCK * origin.stride);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < TOTAL) values[i].store(target + uint64(first + i * 256) * U);
}
#else
struct Part {
  const u8* source;
  uint64 length;               // of the whole part
  unsigned run, offset;        // of each block, and where it begins there
  unsigned first_block, rest;  // of the grid
};
struct Parts {
  Part part[PARTS];
};

// Long runs: the grid is shared out to the parts.
extern "C" __global__ void __launch_bounds__(256) concat(const __grid_constant__ Parts parts, u8* __restrict__ target) {
  int low = 0, high = PARTS - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (parts.part[middle].first_block <= blockIdx.x) low = middle;
    else high = middle - 1;
  }
  const u8* __restrict__ source = parts.part[low].source;
  const index_t length = index_t(parts.part[low].length), run = parts.part[low].run, offset = parts.part[low].offset;
  const index_t first = index_t(blockIdx.x - parts.part[low].first_block) * (256 * ITEMS) + threadIdx.x;
  Vec<u8, U> values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < length) values[i] = Vec<u8, U>::load(source + uint64(first + i * 256) * U);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const index_t at = first + i * 256;
    if (at < length) values[i].store(target + uint64(at / run * BLOCK + offset + at % run) * U);
  }
}
#endif
