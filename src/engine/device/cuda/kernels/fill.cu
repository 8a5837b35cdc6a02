// SPDX-License-Identifier: Apache-2.0
// Fills rows of bytes, shared out along blockIdx.y, with a pattern of four bytes.
extern "C" __global__ void __launch_bounds__(256)
    fill(unsigned char* target, uint64 rows, uint64 row_bytes, uint64 pitch, unsigned pattern) {
  const uint64 thread = blockIdx.x * uint64(256) + threadIdx.x, threads = gridDim.x * uint64(256);
  for (uint64 r = blockIdx.y; r < rows; r += gridDim.y) {
    unsigned char* row = target + r * pitch;
    if ((reinterpret_cast<uint64>(row) | row_bytes) % 16 == 0) {
      for (uint64 i = thread; i < row_bytes / 16; i += threads)
        reinterpret_cast<uint4*>(row)[i] = make_uint4(pattern, pattern, pattern, pattern);
    } else {
      for (uint64 i = thread; i < row_bytes; i += threads) row[i] = (unsigned char)(pattern >> (i % 4 * 8));
    }
  }
}
