// SPDX-License-Identifier: Apache-2.0
// A copy in another order of axes. EXTENTS are those of the output, outermost first; STRIDES the distances of
// their neighbours in the input. KIND 0 copies runs, 1 goes by blocks through shared memory, 2 by tiles.

// Where element (or access) e of the output lies in the input.
__device__ index_t source_of(index_t e, index_t (&position)[AXES]) {
  constexpr index_t extents[AXES] = EXTENTS, strides[AXES] = STRIDES;
  index_t from = 0;
#pragma unroll
  for (int d = AXES - 1; d > 0; --d) {
    position[d] = e % extents[d];
    from += position[d] * strides[d];
    e /= extents[d];
  }
  position[0] = e;
  return from + e * strides[0];
}

#if KIND == 0
// The innermost axis stays: TOTAL accesses of U bytes, in which extents and strides count.
extern "C" __global__ void __launch_bounds__(256) permute(const u8* __restrict__ x, u8* __restrict__ y) {
  const index_t first = index_t(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
  Vec<u8, U> values[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    index_t position[AXES];
    if (first + i * 256 < TOTAL)
      values[i] = Vec<u8, U>::load(x + uint64(source_of(first + i * 256, position)) * U);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (first + i * 256 < TOTAL) values[i].store(y + uint64(first + i * 256) * U);
}

#elif KIND == 1
// Blocks of elements that stay together, whole ones in each CHUNK: read in order, written in order, and
// permuted on the way. A chunk is a multiple of V elements, 16 bytes.
extern "C" __global__ void __launch_bounds__(256) permute(const T* __restrict__ x, T* __restrict__ y) {
  constexpr index_t extents[AXES] = EXTENTS, strides[AXES] = STRIDES;
  __shared__ alignas(16) T chunk[CHUNK];
  const index_t begin = index_t(blockIdx.x) * CHUNK;
  const int count = TOTAL - begin < CHUNK ? int(TOTAL - begin) : CHUNK, whole = count / V * V;
#pragma unroll 4
  for (int i = threadIdx.x * V; i < whole; i += 256 * V) Vec<T, V>::load(x + begin + i).store(chunk + i);
  for (int i = whole + threadIdx.x; i < count; i += 256) chunk[i] = x[begin + i];
  __syncthreads();
  for (int i = threadIdx.x * V; i < whole; i += 256 * V) {
    index_t position[AXES];
    int from = int(source_of(i, position));
    Vec<T, V> values;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values.set_raw(v, chunk[from].bits);
      from += int(strides[AXES - 1]);
      bool carry = true;
#pragma unroll
      for (int d = AXES - 1; d > 0; --d) {
        position[d] += carry;
        carry = carry && position[d] == extents[d];
        if (carry) from += int(strides[d - 1]) - int(extents[d] * strides[d]), position[d] = 0;
      }
    }
    values.store(y + begin + i);
  }
  for (int i = whole + threadIdx.x; i < count; i += 256) {
    index_t position[AXES];
    y[begin + i] = chunk[source_of(i, position)];
  }
}

#else
// Tiles of A_TILE x B_TILE: A is the innermost axis of the input, B of the output. EXTENTS and STRIDES are of
// the others; OUTPUT_STRIDES the distances of their neighbours in the output.
extern "C" __global__ void __launch_bounds__(256) permute(const T* __restrict__ x, T* __restrict__ y) {
  constexpr index_t extents[AXES] = EXTENTS, targets[AXES] = OUTPUT_STRIDES;
  constexpr index_t a_tiles = (A + A_TILE - 1) / A_TILE, b_tiles = (B + B_TILE - 1) / B_TILE;
  __shared__ T tile[B_TILE][A_TILE + 4 / sizeof(T)];
  index_t rest = blockIdx.x;
  const index_t a0 = rest % a_tiles * A_TILE;
  rest /= a_tiles;
  const index_t b0 = rest % b_tiles * B_TILE;
  index_t position[AXES], to = 0;
  const index_t from = source_of(rest / b_tiles, position);
#pragma unroll
  for (int d = 0; d < AXES; ++d) to += position[d] * targets[d];
#pragma unroll 4
  for (int i = threadIdx.x; i < B_TILE * (A_TILE / A_WIDTH); i += 256) {
    const int b = i / (A_TILE / A_WIDTH), a = i % (A_TILE / A_WIDTH) * A_WIDTH;
    if (b0 + b >= B || a0 + a >= A) continue;
    const Vec<T, A_WIDTH> values = Vec<T, A_WIDTH>::load(x + from + (b0 + b) * B_STRIDE + a0 + a);
#pragma unroll
    for (int v = 0; v < A_WIDTH; ++v) tile[b][a + v].bits = values.raw(v);
  }
  __syncthreads();
#pragma unroll 4
  for (int i = threadIdx.x; i < A_TILE * (B_TILE / B_WIDTH); i += 256) {
    const int a = i / (B_TILE / B_WIDTH), b = i % (B_TILE / B_WIDTH) * B_WIDTH;
    if (a0 + a >= A || b0 + b >= B) continue;
    Vec<T, B_WIDTH> values;
#pragma unroll
    for (int v = 0; v < B_WIDTH; ++v) values.set_raw(v, tile[b + v][a].bits);
    values.store(y + to + (a0 + a) * A_TARGET + b0 + b);
  }
}
#endif
