// SPDX-License-Identifier: Apache-2.0
#include "engine/base/half.h"
#include "engine/ops/pad/pad.h"
#include "engine/ops/pad/source.h"
#include "engine/ops/support/copy_cpu.h"

namespace ren {
namespace {

// For each position of an axis of y, the position of x that it comes from, or -1.
std::vector<int64_t> sources_of(const PadAttributes& a, int64_t padded, int64_t before, int64_t size) {
  std::vector<int64_t> sources;
  for (int64_t i = 0; i < padded; ++i) sources.push_back(pad_source(a.mode, i, before, size));
  return sources;
}

// For each position of an axis of x, the positions of y that come from it.
std::vector<std::vector<int64_t>> readers_of(const std::vector<int64_t>& sources, int64_t size) {
  std::vector<std::vector<int64_t>> readers(static_cast<size_t>(size));
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i] >= 0) readers[size_t(sources[i])].push_back(int64_t(i));
  return readers;
}

struct Maps {
  std::vector<int64_t> h, w, c;
  bool same_channels;
};

Maps maps_of(const PadAttributes& a, const Shape& x, const Shape& y) {
  return {sources_of(a, y.h, a.top, x.h), sources_of(a, y.w, a.left, x.w),
          sources_of(a, y.c, a.c_before, x.c), a.c_before == 0 && a.c_after == 0};
}

class Pad final : public Kernel {
 public:
  explicit Pad(const BindContext& context)
      : x_(input_tensor(context, 0).shape),
        y_(output_tensor(context, 0).shape),
        maps_(maps_of(context.node.as<PadAttributes>(), x_, y_)),
        element_(int64_t(size_of(input_tensor(context, 0).dtype))),
        source_(context.inputs[0]),
        target_(context.outputs[0]) {
    const auto value = float(context.node.as<PadAttributes>().value);
    convert_from_f32(&value, input_tensor(context, 0).dtype, value_, 1);
  }

  void launch() noexcept override {
    parallel_for(y_.n * y_.h, block_grain(y_.w * y_.c * element_), [this](int, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) fill_row(row / y_.h, row % y_.h);
    });
  }

 private:
  void fill(std::byte* at, int64_t count) const { copy_pieces(at, element_, value_, 0, element_, count); }

  void fill_row(int64_t n, int64_t h) const noexcept {
    const int64_t pixel = y_.c * element_, sh = maps_.h[size_t(h)];
    std::byte* at = target_ + (n * y_.h + h) * y_.w * pixel;
    for (int64_t w = 0; w < y_.w; ++w, at += pixel) {
      const int64_t sw = maps_.w[size_t(w)];
      if (sh < 0 || sw < 0) {
        fill(at, y_.c);
        continue;
      }
      const std::byte* from = source_ + ((n * x_.h + sh) * x_.w + sw) * x_.c * element_;
      if (maps_.same_channels) {
        std::memcpy(at, from, size_t(pixel));
      } else {
        copy_channels(at, from);
      }
    }
  }

  void copy_channels(std::byte* at, const std::byte* from) const noexcept {
    for (int64_t c = 0; c < y_.c; ++c) {
      const int64_t sc = maps_.c[size_t(c)];
      std::memcpy(at + c * element_, sc < 0 ? value_ : from + sc * element_, size_t(element_));
    }
  }

  Shape x_, y_;
  Maps maps_;
  int64_t element_;
  const std::byte* source_;
  std::byte* target_;
  std::byte value_[4] = {};
};

REN_CLONES void add_to(const float* x, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] += x[i];
}

// Each element of dx gathers the positions that were copied from it, in a fixed order.
class PadBackward final : public Kernel {
 public:
  explicit PadBackward(const BindContext& context)
      : x_(output_tensor(context, 0).shape),
        y_(input_tensor(context, 0).shape),
        type_(input_tensor(context, 0).dtype),
        source_(context.inputs[0]),
        target_(context.outputs[0]),
        buffers_(reinterpret_cast<float*>(context.workspace)) {
    const Maps maps = maps_of(context.node.as<PadAttributes>(), x_, y_);
    h_ = readers_of(maps.h, x_.h);
    w_ = readers_of(maps.w, x_.w);
    c_ = readers_of(maps.c, x_.c);
    same_channels_ = maps.same_channels;
  }

  static int64_t grain_of(const Shape& x) { return block_grain(x.w * x.c * 4); }
  // A row of sums and a row of dy for each thread.
  static uint64_t workspace_bytes(const Shape& x, const Shape& y) {
    return uint64_t(parallel_parts(x.n * x.h, grain_of(x))) * uint64_t(x.c + y.c) * sizeof(float);
  }

  void launch() noexcept override {
    parallel_for(x_.n * x_.h, grain_of(x_), [this](int part, int64_t begin, int64_t end) {
      float* sum = buffers_ + part * (x_.c + y_.c);
      for (int64_t row = begin; row < end; ++row)
        for (int64_t w = 0; w < x_.w; ++w) gather(row / x_.h, row % x_.h, w, sum, sum + x_.c);
    });
  }

 private:
  void gather(int64_t n, int64_t h, int64_t w, float* sum, float* buffer) const noexcept {
    const auto element = int64_t(size_of(type_));
    std::fill_n(sum, x_.c, 0.0f);
    for (const int64_t yh : h_[size_t(h)])
      for (const int64_t yw : w_[size_t(w)]) {
        convert_to_f32(source_ + ((n * y_.h + yh) * y_.w + yw) * y_.c * element, type_, buffer, size_t(y_.c));
        if (same_channels_) {
          add_to(buffer, x_.c, sum);
          continue;
        }
        for (int64_t c = 0; c < x_.c; ++c)
          for (const int64_t yc : c_[size_t(c)]) sum[c] += buffer[yc];
      }
    convert_from_f32(sum, type_, target_ + ((n * x_.h + h) * x_.w + w) * x_.c * element, size_t(x_.c));
  }

  Shape x_, y_;
  DType type_;
  std::vector<std::vector<int64_t>> h_, w_, c_;
  bool same_channels_ = true;
  const std::byte* source_;
  std::byte* target_;
  float* buffers_;
};

NodeChoice prepare_backward(const PrepareContext& context) {
  return own_engine(PadBackward::workspace_bytes(context.graph.at(context.node.outputs[0]).shape,
                                                 context.graph.at(context.node.inputs[0]).shape));
}

std::unique_ptr<Kernel> bind(const BindContext& context) { return std::make_unique<Pad>(context); }
std::unique_ptr<Kernel> bind_backward(const BindContext& context) {
  return std::make_unique<PadBackward>(context);
}

}  // namespace

const OpBackend& pad_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

const OpBackend& pad_backward_cpu() {
  static const OpBackend backend{prepare_backward, bind_backward};
  return backend;
}

}  // namespace ren
