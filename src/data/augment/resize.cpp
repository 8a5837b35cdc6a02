// SPDX-License-Identifier: Apache-2.0
#include "data/augment/resize.h"

#include <cmath>
#include <cstring>

#include "data/augment/resize_kernels.h"
#include "engine/base/status.h"

// Contracting a * b + c into one rounding would change weights by a unit here and there,
// and the pixels with them.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

namespace ren::data {
namespace {

double triangle(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {  // Keys, a = -0.5
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

int32_t to_fixed(double weight) { return int32_t((weight < 0 ? -0.5 : 0.5) + weight * (1 << kResizeBits)); }

bool is_whole(float begin, float end, int source, int target) {
  return source == target && begin == 0.0f && end == float(source);
}

void copy_rows(const ImageView& source, Image& target) {
  target.resize(source.width, source.height, source.channels);
  for (int y = 0; y < source.height; ++y) std::memcpy(target.row(y), source.row(y), target.stride());
}

void check_box(const ImageView& source, const Box& box, int width, int height) {
  const bool inside = box.left >= 0 && box.top >= 0 && box.right <= float(source.width) &&
                      box.bottom <= float(source.height) && box.left < box.right && box.top < box.bottom;
  require(inside && width > 0 && height > 0, "resize of a {} x {} picture: bad box or size", source.width,
          source.height);
  require(source.channels == 1 || source.channels == 3, "resize of {} channels", source.channels);
}

// Rounding between the passes makes their order visible. This is Pillow's rule from version
// 13 on, by the sizes of the whole picture; earlier versions always go across first.
bool vertical_first(const ImageView& source, int width, int height) {
  return height < source.height && int64_t{source.height} - height > 2 * (int64_t{source.width} - width);
}

// The rows (columns) that the weights refer to, which are renumbered to begin at 0.
ImageView used_rows(const ImageView& source, AxisWeights& down) {
  const int first = down.first.front(), last = down.first.back() + down.count.back();
  for (int& position : down.first) position -= first;
  return source.crop({0, first, source.width, last - first});
}

ImageView used_columns(const ImageView& source, AxisWeights& across) {
  const int first = across.first.front(), last = across.first.back() + across.count.back();
  for (int& position : across.first) position -= first;
  return source.crop({first, 0, last - first, source.height});
}

void pass_across(const ResizeKernels& kernels, const ImageView& source, const AxisWeights& across, int width,
                 std::vector<int16_t>& packed, Image& target) {
  target.resize(width, source.height, source.channels);
  kernels.horizontal(source, across, packed, target);
}

void pass_down(const ResizeKernels& kernels, const ImageView& source, const AxisWeights& down, int height,
               Image& target) {
  target.resize(source.width, height, source.channels);
  for (int y = 0; y < height; ++y)
    kernels.vertical(source.row(down.first[size_t(y)]), source.stride, down.at(y), down.count[size_t(y)],
                     target.stride(), target.row(y));
}

void resize_with(const ResizeKernels& kernels, const ImageView& source, const Box& box, int width, int height,
                 Filter filter, Image& between, AxisWeights& across, AxisWeights& down,
                 std::vector<int16_t>& packed, Image& target) {
  check_box(source, box, width, height);
  const bool keep_width = is_whole(box.left, box.right, source.width, width);
  const bool keep_height = is_whole(box.top, box.bottom, source.height, height);
  if (keep_width && keep_height) return copy_rows(source, target);

  across = axis_weights(source.width, box.left, box.right, width, filter);
  down = axis_weights(source.height, box.top, box.bottom, height, filter);
  if (keep_height) return pass_across(kernels, source, across, width, packed, target);
  if (keep_width) return pass_down(kernels, source, down, height, target);
  if (vertical_first(source, width, height)) {
    const ImageView columns = used_columns(source, across);
    pass_down(kernels, columns, down, height, between);
    pass_across(kernels, between.view(), across, width, packed, target);
  } else {
    const ImageView rows = used_rows(source, down);
    pass_across(kernels, rows, across, width, packed, between);
    pass_down(kernels, between.view(), down, height, target);
  }
}

}  // namespace

AxisWeights axis_weights(int source, float begin, float end, int target, Filter filter) {
  const double scale = double(end - begin) / target;  // the difference in FP32, as Pillow has it
  const double filter_scale = std::max(scale, 1.0);
  const double support = (filter == Filter::bilinear ? 1.0 : 2.0) * filter_scale;
  const double inverse = 1.0 / filter_scale;
  AxisWeights out;
  out.taps = int(std::ceil(support)) * 2 + 1;
  out.first.resize(size_t(target));
  out.count.resize(size_t(target));
  out.weights.assign(size_t(target) * size_t(out.taps), 0);
  std::vector<double> row(size_t(out.taps), 0.0);
  for (int i = 0; i < target; ++i) {
    const double center = begin + (i + 0.5) * scale;
    const int first = std::max(0, int(center - support + 0.5));
    const int count = std::min(source, int(center + support + 0.5)) - first;
    double sum = 0.0;
    for (int k = 0; k < count; ++k) {
      const double x = (k + first - center + 0.5) * inverse;
      row[size_t(k)] = filter == Filter::bilinear ? triangle(x) : cubic(x);
      sum += row[size_t(k)];
    }
    for (int k = 0; k < count; ++k) {
      const double weight = sum != 0.0 ? row[size_t(k)] / sum : row[size_t(k)];
      out.weights[size_t(i) * size_t(out.taps) + size_t(k)] = to_fixed(weight);
    }
    out.first[size_t(i)] = first;
    out.count[size_t(i)] = count;
  }
  return out;
}

void Resizer::resize(const ImageView& source, int width, int height, Filter filter, Image& target) {
  resize(source, {0, 0, float(source.width), float(source.height)}, width, height, filter, target);
}

void Resizer::resize(const ImageView& source, const Box& box, int width, int height, Filter filter,
                     Image& target) {
  static const ResizeKernels& kernels =
      avx2_resize_kernels() != nullptr ? *avx2_resize_kernels() : portable_resize_kernels();
  resize_with(kernels, source, box, width, height, filter, between_, horizontal_, vertical_, packed_, target);
}

void resize_reference(const ImageView& source, const Box& box, int width, int height, Filter filter,
                      Image& target) {
  Image between;
  AxisWeights across, down;
  std::vector<int16_t> packed;
  resize_with(portable_resize_kernels(), source, box, width, height, filter, between, across, down, packed,
              target);
}

}  // namespace ren::data
