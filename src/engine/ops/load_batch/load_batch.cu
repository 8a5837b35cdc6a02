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

// V elements, or one padded pixel, normalised.
__device__ void load_vector(const X* images, index_t vector, float* values) {
  if constexpr (PADDED) {
#pragma unroll
    for (int v = 0; v < V; ++v)
      values[v] = v < C ? (load_one(images + vector * C + v) - kMean[v % C]) * kScale[v % C] : 0.0f;
  } else {
    const Vec<X, V> in = Vec<X, V>::load(images + vector * V);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int c = int((vector * V + v) % C);
      values[v] = (in.get(v) - kMean[c]) * kScale[c];
    }
  }
}

#if MIXES
struct Mix {   // ren::BatchMix
  int top, left, bottom, right;
  float inside, own;
};

// Puts the pixels of the sample before into the box. A sample is a whole number of vectors.
__device__ void mix_vector(const X* images, index_t vector, const Mix& mix, float* values) {
  float partner[V];
  load_vector(images, vector < SAMPLE_VECTORS ? vector + (VECTORS - SAMPLE_VECTORS) : vector - SAMPLE_VECTORS,
              partner);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const index_t pixel = PADDED ? vector : (vector * V + v) / C;
    const int x = int(pixel % WIDTH), y = int(pixel / WIDTH % HEIGHT);
    if (y < mix.top || y >= mix.bottom || x < mix.left || x >= mix.right || mix.inside == 1.0f) continue;
    values[v] = mix.inside == 0.0f ? partner[v] : values[v] * mix.inside + partner[v] * (1.0f - mix.inside);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    load_batch(const Slot slot0, const Slot slot1, const int* step, Y* images, int* labels, const Scalars scalars
#if MIXES
               , int* partners, float* own
#endif
    ) {
  const Slot& slot = step[0] & 1 ? slot1 : slot0;
  const index_t thread = index_t(blockIdx.x) * 256 + threadIdx.x, threads = index_t(gridDim.x) * 256;
#if MIXES
  const Mix mix = *reinterpret_cast<const Mix*>(slot.record + MIX_WORD);
#endif
  for (index_t vector = thread; vector < VECTORS; vector += threads) {
    float values[V];
    load_vector(slot.images, vector, values);
#if MIXES
    mix_vector(slot.images, vector, mix, values);
#endif
    Vec<Y, V>::pack(values).store(images + vector * V);
  }
  if (labels)
    for (index_t i = thread; i < LABELS; i += threads) labels[i] = slot.labels[i];
#if MIXES
  for (index_t i = thread; i < LABELS; i += threads)
    partners[i] = slot.labels[i < SAMPLE_LABELS ? i + (LABELS - SAMPLE_LABELS) : i - SAMPLE_LABELS];
  if (thread == 0) own[0] = mix.own;
#endif
  if (blockIdx.x == 0 && threadIdx.x < 64) {
#pragma unroll
    for (int s = 0; s < RECORD_SCALARS; ++s) {
      const int component = int(threadIdx.x) - kOffset[s];
      if (scalars.target[s] && component >= 0 && component < kComponents[s])
        scalars.target[s][component] = slot.record[threadIdx.x];
    }
  }
}
