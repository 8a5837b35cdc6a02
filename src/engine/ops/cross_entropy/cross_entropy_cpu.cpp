// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/support/rows_cpu.h"

namespace ren {
namespace {

struct Sums {
  double loss = 0, correct = 0, correct5 = 0;
};

struct RowFacts {
  float largest;
  double exponentials;  // sum of exp(z - largest)
};

// How many classes come before the target in the order of falling logits.
REN_CLONES int64_t rank_of(const float* z, int64_t classes, int64_t target) {
  const float t = z[target];
  int32_t before = 0;
  for (int64_t c = 0; c < target; ++c) before += z[c] >= t ? 1 : 0;
  for (int64_t c = target + 1; c < classes; ++c) before += z[c] > t ? 1 : 0;
  return t != t ? classes : before;
}

// One row; NaN and infinities among the logits show in the sum and so in the loss. `work`
// receives the exponentials.
RowFacts facts_of(const float* z, int64_t classes, float* work) {
  const float largest = largest_of(z, classes);
  return {largest, exponentials(z, largest, classes, work)};
}

struct Operands {
  CrossEntropyAttributes a;
  int64_t rows, classes;
  DType type;
  const std::byte* logits;
  const int32_t* labels;
  const float* inverse_count;
  float* buffers;  // two rows a thread

  const float* row(int64_t i, int part) const {
    return load_row(logits, type, i, classes, buffers + 2 * part * classes);
  }
  float* work(int part) const { return buffers + (2 * part + 1) * classes; }
};

// Workspace: two rows of floats for each thread, then its sums.
uint64_t sums_offset(const Shape& logits, int parts) {
  return align_up(uint64_t(parts) * uint64_t(logits.c) * 2 * sizeof(float));
}

NodeChoice prepare(const PrepareContext& context) {
  const Shape& logits = context.graph.at(context.node.inputs[0]).shape;
  const int parts = parallel_parts(logits.pixels(), row_grain(logits.c));
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

void add_row(const Operands& o, const float* z, int32_t target, float* work, Sums& sums) {
  if (target == o.a.ignore_index) return;
  if (target < 0 || target >= o.classes) {
    sums.loss = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const RowFacts facts = facts_of(z, o.classes, work);
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
  const int parts = parallel_parts(o.rows, row_grain(o.classes));
  auto* partial =
      reinterpret_cast<Sums*>(context.workspace + sums_offset(input_tensor(context, 0).shape, parts));
  float *loss = output_as<float>(context, 0), *correct = output_as<float>(context, 1);
  float* correct5 = output_as<float>(context, 2);
  return make_kernel([=] {
    std::fill_n(partial, parts, Sums{});
    parallel_for(o.rows, row_grain(o.classes), [&](int part, int64_t begin, int64_t end) {
      Sums sums;
      for (int64_t i = begin; i < end; ++i) add_row(o, o.row(i, part), o.labels[i], o.work(part), sums);
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

// exp / sum - the share of each class in the smoothed target.
REN_CLONES void finish_gradient(float* dz, float share, float uniform, int64_t count) {
  for (int64_t c = 0; c < count; ++c) dz[c] = dz[c] * share - uniform;
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
  const RowFacts facts = facts_of(z, o.classes, dz);
  finish_gradient(dz, float(1 / facts.exponentials), o.a.label_smoothing / float(o.classes), o.classes);
  dz[target] -= 1 - o.a.label_smoothing;
  for (int64_t c = 0; c < o.classes; ++c) dz[c] *= factor;
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  const Operands o = operands_of(context);
  const float* loss_scale = input_as<float>(context, 3);
  const DType type = output_tensor(context, 0).dtype;
  std::byte* out = context.outputs[0];
  return make_kernel([=] {
    const float factor = o.a.weight * *o.inverse_count * *loss_scale;
    parallel_for(o.rows, row_grain(o.classes), [&](int part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* dz = begin_row(out, type, i, o.classes, o.work(part));
        gradient_row(o, o.row(i, part), o.labels[i], factor, dz);
        finish_row(dz, out, type, i, o.classes);
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
