// SPDX-License-Identifier: Apache-2.0
// Mean, inverse standard deviation and moved running statistics of many layers, from the sums that their
// convolutions made: statistics_expression, which the readers in forward evaluate, and what finish_channel of
// batch_norm.cu does besides. What cancels in the difference is below the rounding of the 16-bit values
// summed.

struct Layer {
  const float *sums, *squares;
  float *running_mean, *running_variance;
  const float* shift;
  float *mean, *inverse_std;
  int channels;
  float share, unbiased_rows, epsilon, keep;  // share: 1 / rows
};

// blockIdx.y is the layer; those of few channels leave blocks idle.
extern "C" __global__ void __launch_bounds__(THREADS) batch_norm_from_sums(const Layer* layers) {
  const Layer layer = layers[blockIdx.y];
  const int c = blockIdx.x * THREADS + threadIdx.x;
  if (c >= layer.channels) return;
  const float sum = layer.sums[c], mean = sum * layer.share;
  const float m2 = maximum(layer.squares[c] - sum * mean, 0.0f);
  if (layer.mean) layer.mean[c] = mean;
  if (layer.inverse_std) layer.inverse_std[c] = rsqrtf(m2 * layer.share + layer.epsilon);
  if (!layer.running_mean || !isfinite(mean) || !isfinite(m2)) return;
  const float moved = mean + (layer.shift ? layer.shift[c] : 0.0f);
  layer.running_mean[c] = layer.keep * layer.running_mean[c] + (1.0f - layer.keep) * moved;
  layer.running_variance[c] =
      layer.keep * layer.running_variance[c] + (1.0f - layer.keep) * (m2 / layer.unbiased_rows);
}
