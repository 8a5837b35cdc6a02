// SPDX-License-Identifier: Apache-2.0
// Cross entropy of ROWS rows of C logits, one warp a row.

struct RowResult {
  float loss, correct, correct5;
};

__device__ float add(float a, float b) { return a + b; }

// log(sum(exp(row))) as its two parts, so that nothing overflows.
__device__ void log_sum_exp(const X* row, int lane, float& peak, float& log_sum) {
  peak = -__int_as_float(0x7f800000);
  for (int c = lane; c < C; c += 32) peak = maximum(peak, load_one(row + c));
  peak = warp_reduce(peak, maximum);
  float sum = 0.0f;
  for (int c = lane; c < C; c += 32) sum += expf(load_one(row + c) - peak);
  log_sum = logf(warp_reduce(sum, add));
}

// One label's part of a row's loss but for the smoothing, which is the same for each.
__device__ float label_loss(const X* row, int label, float peak, float log_sum) {
  return label == IGNORE_INDEX ? 0.0f : -(1.0f - SMOOTHING) * (load_one(row + label) - peak - log_sum);
}

__device__ bool is_wrong(int label) { return label != IGNORE_INDEX && (label < 0 || label >= C); }

#if MIXED   // the partners' labels, and the share of a row's own one
#define MIX_PARAMETERS , const int* partners, const float* own_share
#else
#define MIX_PARAMETERS
#endif

// Threads (32, 8): eight rows a block.
extern "C" __global__ void __launch_bounds__(256)
    rows(const X* logits, const int* labels, RowResult* results MIX_PARAMETERS) {
  const int64 r = int64(blockIdx.x) * 8 + threadIdx.y;
  if (r >= ROWS) return;
  const int lane = threadIdx.x, label = labels[r];
#if MIXED
  const float share = own_share[0];
  const int partner = partners[r], judged = share >= 0.5f ? label : partner;
  const float counted = (label != IGNORE_INDEX ? share : 0.0f) + (partner != IGNORE_INDEX ? 1.0f - share : 0.0f);
#else
  const int partner = label, judged = label;
  const float counted = label != IGNORE_INDEX ? 1.0f : 0.0f;
#endif
  RowResult result = {0.0f, 0.0f, 0.0f};
  if (is_wrong(label) || is_wrong(partner)) {
    result.loss = __int_as_float(0x7fc00000);
  } else if (counted != 0.0f) {
    const X* row = logits + r * C;
    float peak, log_sum;
    log_sum_exp(row, lane, peak, log_sum);
    const bool judges = judged != IGNORE_INDEX;
    const float target = judges ? load_one(row + judged) : 0.0f;
    float ahead = 0.0f, all = 0.0f;
    for (int c = lane; c < C; c += 32) {
      const float x = load_one(row + c);
      // Not "larger": a NaN target is ahead of nothing.
      if (c != judged && (!(x <= target) || (x == target && c < judged))) ahead += 1.0f;
      if (SMOOTHING != 0.0f) all += x - peak - log_sum;
    }
    ahead = warp_reduce(ahead, add);
    result.loss = label_loss(row, label, peak, log_sum);
#if MIXED
    result.loss = share * result.loss + (1.0f - share) * label_loss(row, partner, peak, log_sum);
#endif
    if (SMOOTHING != 0.0f) result.loss -= counted * (SMOOTHING / C) * warp_reduce(all, add);
    result.correct = judges && ahead < 1.0f;
    result.correct5 = judges && ahead < 5.0f;
  }
  if (lane == 0) results[r] = result;
}

// One block: the rows' results, summed in a fixed order.
extern "C" __global__ void __launch_bounds__(256)
    total(const RowResult* results, const float* inverse_count, float* loss, float* correct, float* correct5) {
  Sum sums[3];
  for (int64 r = threadIdx.x; r < ROWS; r += 256) {
    sums[0].add(results[r].loss);
    sums[1].add(results[r].correct);
    sums[2].add(results[r].correct5);
  }
  __shared__ float warps[3][8];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const float part = warp_reduce(sums[i].result(), add);
    if (threadIdx.x % 32 == 0) warps[i][threadIdx.x / 32] = part;
  }
  __syncthreads();
  if (threadIdx.x >= 3) return;
  float value = 0.0f;
  for (int w = 0; w < 8; ++w) value += warps[threadIdx.x][w];
  if (threadIdx.x == 0 && loss) loss[0] = value * WEIGHT * inverse_count[0];
  if (threadIdx.x == 1 && correct) correct[0] = value;
  if (threadIdx.x == 2 && correct5) correct5[0] = value;
}

// Threads (32, 8): eight rows a block.
extern "C" __global__ void __launch_bounds__(256)
    backward(const X* logits, const int* labels, const float* inverse_count, const float* loss_scale,
             DX* gradient MIX_PARAMETERS) {
  const int64 r = int64(blockIdx.x) * 8 + threadIdx.y;
  if (r >= ROWS) return;
  const int lane = threadIdx.x, label = labels[r];
#if MIXED
  const float share = own_share[0];
  const int partner = partners[r];
  const float counted = (label != IGNORE_INDEX ? share : 0.0f) + (partner != IGNORE_INDEX ? 1.0f - share : 0.0f);
#else
  const float counted = label != IGNORE_INDEX ? 1.0f : 0.0f;
#endif
  DX* out = gradient + r * C;
  if (counted == 0.0f) {
    for (int c = lane; c < C; c += 32) store_one(out + c, 0.0f);
    return;
  }
  const X* row = logits + r * C;
  float peak, log_sum;
  log_sum_exp(row, lane, peak, log_sum);
  const float factor = WEIGHT * inverse_count[0] * (loss_scale ? loss_scale[0] : 1.0f);
  const float shift = peak + log_sum;
  for (int c = lane; c < C; c += 32) {
    float g = expf(load_one(row + c) - shift) - SMOOTHING / C;
#if MIXED
    g *= counted;
    if (c == label) g -= share * (1.0f - SMOOTHING);
    if (c == partner) g -= (1.0f - share) * (1.0f - SMOOTHING);
#else
    if (c == label) g -= 1.0f - SMOOTHING;
#endif
    store_one(out + c, g * factor);
  }
}
