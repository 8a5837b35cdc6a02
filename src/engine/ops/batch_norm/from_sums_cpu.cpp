// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/ops/batch_norm/from_sums.h"
#include "engine/ops/support/kernel.h"

namespace ren {
namespace {

struct Layer {
  BatchNormFromSumsAttributes::Layer is;
  int64_t channels;
  const float *sums, *squares;
  float *running_mean, *running_variance;
  const float* shift;
  float *mean, *inverse;

  void run() const {
    for (int64_t c = 0; c < channels; ++c) run(c);
  }

 private:
  void run(int64_t c) const {
    const float share = float(1.0 / double(is.rows)), m = sums[c] * share;
    const float difference = squares[c] - sums[c] * m;
    const float deviations = difference < 0 ? 0 : difference;  // NaN stays
    if (mean) mean[c] = m;
    if (inverse) inverse[c] = 1 / std::sqrt(deviations * share + is.epsilon);
    if (!running_mean || !std::isfinite(m) || !std::isfinite(deviations)) return;
    const float moved = m + (shift ? shift[c] : 0);
    running_mean[c] = is.keep * running_mean[c] + (1 - is.keep) * moved;
    running_variance[c] = is.keep * running_variance[c] + (1 - is.keep) * (deviations / float(is.rows - 1));
  }
};

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const auto& attributes = context.node.as<BatchNormFromSumsAttributes>();
  std::vector<Layer> layers;
  for (size_t i = 0; i < attributes.layers.size(); ++i) {
    const size_t in = i * LayerInput::kCount, out = i * LayerOutput::kCount;
    layers.push_back({attributes.layers[i], input_tensor(context, in).shape.c,
                      input_as<const float>(context, in),
                      input_as<const float>(context, in + LayerInput::kSquares),
                      input_as<float>(context, in + LayerInput::kMean),
                      input_as<float>(context, in + LayerInput::kVariance),
                      input_as<const float>(context, in + LayerInput::kShift),
                      output_as<float>(context, out + LayerOutput::kMean),
                      output_as<float>(context, out + LayerOutput::kInverse)});
  }
  return make_kernel([layers = std::move(layers)] {
    for (const Layer& layer : layers) layer.run();
  });
}

}  // namespace

const OpBackend& batch_norm_from_sums_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
