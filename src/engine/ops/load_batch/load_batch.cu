// SPDX-License-Identifier: Apache-2.0
// Takes a batch from the input slot that the step counter selects: images normalised and
// converted, labels copied, the step record's scalars put where kernels read them.
struct Slot {
  const unsigned* record;
  const int* labels;
  const X* images;
};
struct Scalars {
  unsigned* target[RECORD_SCALARS];   // null: nobody reads it
};
// CHANNEL_TABLES: kMean and kScale
//@CHANNEL_TABLES
//@RECORD_TABLES

extern "C" __global__ void __launch_bounds__(256)
    load_batch(const Slot slot0, const Slot slot1, const int* step, Y* images, int* labels, const Scalars scalars) {
  const Slot& slot = step[0] & 1 ? slot1 : slot0;
  const index_t thread = index_t(blockIdx.x) * 256 + threadIdx.x, threads = index_t(gridDim.x) * 256;
  for (index_t vector = thread; vector < VECTORS; vector += threads) {
    float values[V];
    if constexpr (PADDED) {
#pragma unroll
      for (int v = 0; v < V; ++v)
        values[v] = v < C ? (load_one(slot.images + vector * C + v) - kMean[v % C]) * kScale[v % C] : 0.0f;
    } else {
      const Vec<X, V> in = Vec<X, V>::load(slot.images + vector * V);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const int c = int((vector * V + v) % C);
        values[v] = (in.get(v) - kMean[c]) * kScale[c];
      }
    }
    Vec<Y, V>::pack(values).store(images + vector * V);
  }
  if (labels)
    for (index_t i = thread; i < LABELS; i += threads) labels[i] = slot.labels[i];
  if (blockIdx.x == 0 && threadIdx.x < 64) {
#pragma unroll
    for (int s = 0; s < RECORD_SCALARS; ++s) {
      const int component = int(threadIdx.x) - kOffset[s];
      if (scalars.target[s] && component >= 0 && component < kComponents[s])
        scalars.target[s][component] = slot.record[threadIdx.x];
    }
  }
}
