// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "engine/base/half.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/support/kernel.h"

namespace ren {
namespace {

struct Sums {
  double loss = 0, correct = 0, correct5 = 0;
};

struct RowFacts {
  float largest;
  double exponentials;  // sum of exp(z - largest)
};

int64_t grain_of(int64_t classes) { return std::max<int64_t>(1, (1 << 12) / classes); }

REN_CLONES float largest_of(const float* z, int64_t classes) {
  float lanes[16];
  std::fill_n(lanes, 16, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + 16 <= classes; i += 16)
    for (int64_t k = 0; k < 16; ++k) lanes[k] = z[i + k] > lanes[k] ? z[i + k] : lanes[k];
  for (; i < classes; ++i) lanes[0] = z[i] > lanes[0] ? z[i] : lanes[0];
  float largest = lanes[0];
  for (int64_t k = 1; k < 16; ++k) largest = std::max(largest, lanes[k]);
  return largest;
}

// How many classes come before the target in the order of falling logits.
REN_CLONES int64_t rank_of(const float* z, int64_t classes, int64_t target) {
  const float t = z[target];
  int32_t before = 0;
  for (int64_t c = 0; c < target; ++c) before += z[c] >= t ? 1 : 0;
  for (int64_t c = target + 1; c < classes; ++c) before += z[c] > t ? 1 : 0;
  return t != t ? classes : before;
}

// One row; NaN and infinities among the logits show in the sum and so in the loss.
RowFacts facts_of(const float* z, int64_t classes) {
  const float largest = largest_of(z, classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += double(std::exp(z[c] - largest));
  return {largest, sum};
}

struct Operands {
  CrossEntropyAttributes a;
  int64_t rows, classes;
  DType type;
  const std::byte* logits;
  const int32_t* labels;
  const float* inverse_count;
  float* buffers;  // one row a thread, for 16-bit logits

  const float* row(int64_t i, int part) const {
    if (type == DType::f32) return reinterpret_cast<const float*>(logits) + i * classes;
    float* buffer = buffers + part * classes;
    convert_to_f32(logits + i * classes * 2, type, buffer, size_t(classes));
    return buffer;
  }
};

// Workspace: a row of floats for each thread (two for the gradient), then its sums.
uint64_t sums_offset(const Shape& logits, int parts) {
  return align_up(uint64_t(parts) * uint64_t(logits.c) * 2 * sizeof(float));
}

NodeChoice prepare(const PrepareContext& context) {
  const Shape& logits = context.graph.at(context.node.inputs[0]).shape;
  const int parts = parallel_parts(logits.pixels(), grain_of(logits.c));
  return own_engine(sums_offset(logits, parts) + uint64_t(parts) * sizeof(Sums));
}

Operands operands_of(const BindContext& context) {
  const Tensor& logits = input_tensor(context, 0);
  return {context.node.as<CrossEntropyAttributes>(),
          logits.shape.pixels(),
          logits.shape.c,
          logits.dtype,
          context.inputs[0],
          input_as<int32_t>(context, 1),
          input_as<float>(context, 2),
          reinterpret_cast<float*>(context.workspace)};
}

void add_row(const Operands& o, const float* z, int32_t target, Sums& sums) {
  if (target == o.a.ignore_index) return;
  if (target < 0 || target >= o.classes) {
    sums.loss = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const RowFacts facts = facts_of(z, o.classes);
  const double norm = double(facts.largest) + std::log(facts.exponentials), smoothing = o.a.label_smoothing;
  double loss = (1 - smoothing) * (norm - double(z[target]));
  if (smoothing > 0) {
    double total = 0;
    for (int64_t c = 0; c < o.classes; ++c) total += double(z[c]);
    loss += smoothing * (norm - total / double(o.classes));
  }
  sums.loss += loss;
  const int64_t rank = rank_of(z, o.classes, target);
  sums.correct += rank < 1;
  sums.correct5 += rank < 5;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Operands o = operands_of(context);
  const int parts = parallel_parts(o.rows, grain_of(o.classes));
  auto* partial =
      reinterpret_cast<Sums*>(context.workspace + sums_offset(input_tensor(context, 0).shape, parts));
  float *loss = output_as<float>(context, 0), *correct = output_as<float>(context, 1);
  float* correct5 = output_as<float>(context, 2);
  return make_kernel([=] {
    std::fill_n(partial, parts, Sums{});
    parallel_for(o.rows, grain_of(o.classes), [&](int part, int64_t begin, int64_t end) {
      Sums sums;
      for (int64_t i = begin; i < end; ++i) add_row(o, o.row(i, part), o.labels[i], sums);
      partial[part] = sums;
    });
    Sums all;
    for (int part = 0; part < parts; ++part) {
      all.loss += partial[part].loss;
      all.correct += partial[part].correct;
      all.correct5 += partial[part].correct5;
    }
    if (loss) *loss = float(double(o.a.weight) * double(*o.inverse_count) * all.loss);
    if (correct) *correct = float(all.correct);
    if (correct5) *correct5 = float(all.correct5);
  });
}

void gradient_row(const Operands& o, const float* z, int32_t target, float factor, float* dz) {
  if (target == o.a.ignore_index) {
    std::fill_n(dz, o.classes, 0.0f);
    return;
  }
  if (target < 0 || target >= o.classes) {
    std::fill_n(dz, o.classes, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const RowFacts facts = facts_of(z, o.classes);
  const float share = float(1 / facts.exponentials), uniform = o.a.label_smoothing / float(o.classes);
  for (int64_t c = 0; c < o.classes; ++c) dz[c] = std::exp(z[c] - facts.largest) * share - uniform;
  dz[target] -= 1 - o.a.label_smoothing;
  for (int64_t c = 0; c < o.classes; ++c) dz[c] *= factor;
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  const Operands o = operands_of(context);
  const int parts = parallel_parts(o.rows, grain_of(o.classes));
  const float* loss_scale = input_as<float>(context, 3);
  const DType type = output_tensor(context, 0).dtype;
  std::byte* out = context.outputs[0];
  return make_kernel([=] {
    const float factor = o.a.weight * *o.inverse_count * *loss_scale;
    parallel_for(o.rows, grain_of(o.classes), [&](int part, int64_t begin, int64_t end) {
      float* buffer = o.buffers + (parts + part) * o.classes;
      for (int64_t i = begin; i < end; ++i) {
        float* dz = type == DType::f32 ? reinterpret_cast<float*>(out) + i * o.classes : buffer;
        gradient_row(o, o.row(i, part), o.labels[i], factor, dz);
        if (type != DType::f32) convert_from_f32(dz, type, out + i * o.classes * 2, size_t(o.classes));
      }
    });
  });
}

}  // namespace

const OpBackend& cross_entropy_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

const OpBackend& cross_entropy_backward_cpu() {
  static const OpBackend backend{prepare, bind_backward};
  return backend;
}

}  // namespace ren
