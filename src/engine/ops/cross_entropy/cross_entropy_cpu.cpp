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

// What a row is compared with; unmixed samples have one label, with all of the share.
struct Target {
  int32_t label, partner;
  float share;                                 // of `label`; the rest is the partner's
  float counted(int32_t ignore_index) const {  // the shares of the labels that count
    return (label != ignore_index ? share : 0.0f) + (partner != ignore_index ? 1.0f - share : 0.0f);
  }
  int32_t judged() const { return share >= 0.5f ? label : partner; }
};

struct Operands {
  CrossEntropyAttributes a;
  int64_t rows, classes;
  DType type;
  const std::byte* logits;
  const int32_t *labels, *partners;  // partners: nullptr where samples are not mixed
  const float *inverse_count, *share;
  float* buffers;  // two rows a thread

  const float* row(int64_t i, int part) const {
    return load_row(logits, type, i, classes, buffers + 2 * part * classes);
  }
  Target target(int64_t i) const {
    return partners == nullptr ? Target{labels[i], labels[i], 1.0f} : Target{labels[i], partners[i], *share};
  }
  bool is_wrong(const Target& t) const {
    const auto wrong = [this](int32_t label) {
      return label != a.ignore_index && (label < 0 || label >= classes);
    };
    return wrong(t.label) || wrong(t.partner);
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

// `scalars`: inputs between the labels and what mixed samples bring.
Operands operands_of(const BindContext& context, size_t scalars) {
  const Tensor& logits = input_tensor(context, 0);
  return {context.node.as<CrossEntropyAttributes>(),
          logits.shape.pixels(),
          logits.shape.c,
          logits.dtype,
          context.inputs[0],
          input_as<int32_t>(context, 1),
          input_as<int32_t>(context, 2 + scalars),
          input_as<float>(context, 2),
          input_as<float>(context, 3 + scalars),
          reinterpret_cast<float*>(context.workspace)};
}

void add_row(const Operands& o, const float* z, const Target& target, float* work, Sums& sums) {
  const float counted = target.counted(o.a.ignore_index);
  if (o.is_wrong(target)) sums.loss = std::numeric_limits<double>::quiet_NaN();
  if (o.is_wrong(target) || counted == 0.0f) return;
  const RowFacts facts = facts_of(z, o.classes, work);
  const double norm = double(facts.largest) + std::log(facts.exponentials), smoothing = o.a.label_smoothing;
  const auto loss_of = [&](int32_t label) {
    return label == o.a.ignore_index ? 0.0 : (1 - smoothing) * (norm - double(z[label]));
  };
  double loss = loss_of(target.label);
  if (o.partners) loss = double(target.share) * loss + double(1.0f - target.share) * loss_of(target.partner);
  if (smoothing > 0) {
    double total = 0;
    for (int64_t c = 0; c < o.classes; ++c) total += double(z[c]);
    loss += double(counted) * smoothing * (norm - total / double(o.classes));
  }
  sums.loss += loss;
  if (target.judged() == o.a.ignore_index) return;
  const int64_t rank = rank_of(z, o.classes, target.judged());
  sums.correct += rank < 1;
  sums.correct5 += rank < 5;
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Operands o = operands_of(context, 1);
  const int parts = parallel_parts(o.rows, row_grain(o.classes));
  auto* partial =
      reinterpret_cast<Sums*>(context.workspace + sums_offset(input_tensor(context, 0).shape, parts));
  float *loss = output_as<float>(context, 0), *correct = output_as<float>(context, 1);
  float* correct5 = output_as<float>(context, 2);
  return make_kernel([=] {
    std::fill_n(partial, parts, Sums{});
    parallel_for(o.rows, row_grain(o.classes), [&](int part, int64_t begin, int64_t end) {
      Sums sums;
      for (int64_t i = begin; i < end; ++i) add_row(o, o.row(i, part), o.target(i), o.work(part), sums);
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

void gradient_row(const Operands& o, const float* z, const Target& target, float factor, float* dz) {
  const float counted = target.counted(o.a.ignore_index), hard = 1 - o.a.label_smoothing;
  if (o.is_wrong(target) || counted == 0.0f) {
    std::fill_n(dz, o.classes, o.is_wrong(target) ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    return;
  }
  const RowFacts facts = facts_of(z, o.classes, dz);
  finish_gradient(dz, float(double(counted) / facts.exponentials),
                  counted * (o.a.label_smoothing / float(o.classes)), o.classes);
  if (target.label != o.a.ignore_index) dz[target.label] -= target.share * hard;
  if (o.partners && target.partner != o.a.ignore_index) dz[target.partner] -= (1.0f - target.share) * hard;
  for (int64_t c = 0; c < o.classes; ++c) dz[c] *= factor;
}

std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  const Operands o = operands_of(context, 2);
  const float* loss_scale = input_as<float>(context, 3);
  const DType type = output_tensor(context, 0).dtype;
  std::byte* out = context.outputs[0];
  return make_kernel([=] {
    const float factor = o.a.weight * *o.inverse_count * *loss_scale;
    parallel_for(o.rows, row_grain(o.classes), [&](int part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* dz = begin_row(out, type, i, o.classes, o.work(part));
        gradient_row(o, o.row(i, part), o.target(i), factor, dz);
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
