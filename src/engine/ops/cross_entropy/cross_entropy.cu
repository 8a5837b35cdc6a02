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

// Threads (32, 8): eight rows a block.
extern "C" __global__ void __launch_bounds__(256) rows(const X* logits, const int* labels, RowResult* results) {
  const int64 r = int64(blockIdx.x) * 8 + threadIdx.y;
  if (r >= ROWS) return;
  const int lane = threadIdx.x, label = labels[r];
  RowResult result = {0.0f, 0.0f, 0.0f};
  if (label != IGNORE_INDEX) {
    const X* row = logits + r * C;
    float peak, log_sum;
    log_sum_exp(row, lane, peak, log_sum);
    if (label < 0 || label >= C) {
      result.loss = __int_as_float(0x7fc00000);
    } else {
      const float target = load_one(row + label);
      float ahead = 0.0f, all = 0.0f;
      for (int c = lane; c < C; c += 32) {
        const float x = load_one(row + c);
        // Not "larger": a NaN target is ahead of nothing.
        if (c != label && (!(x <= target) || (x == target && c < label))) ahead += 1.0f;
        if (SMOOTHING != 0.0f) all += x - peak - log_sum;
      }
      ahead = warp_reduce(ahead, add);
      result.loss = -(1.0f - SMOOTHING) * (target - peak - log_sum);
      if (SMOOTHING != 0.0f) result.loss -= SMOOTHING / C * warp_reduce(all, add);
      result.correct = ahead < 1.0f;
      result.correct5 = ahead < 5.0f;
    }
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
    backward(const X* logits, const int* labels, const float* inverse_count, const float* loss_scale, DX* gradient) {
  const int64 r = int64(blockIdx.x) * 8 + threadIdx.y;
  if (r >= ROWS) return;
  const int lane = threadIdx.x, label = labels[r];
  DX* out = gradient + r * C;
  if (label == IGNORE_INDEX) {
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
    if (c == label) g -= 1.0f - SMOOTHING;
    store_one(out + c, g * factor);
  }
}
