// SPDX-License-Identifier: Apache-2.0
// Contracting a * b + c into one rounding would change pixels.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#include "data/augment/affine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

namespace ren::data {
namespace {

constexpr double kPi = std::numbers::pi;

// torchvision's _get_inverse_affine_matrix without angle and scale: shears in radians, about (cx, cy).
AffineMatrix inverse_matrix(double cx, double cy, double tx, double ty, double sx, double sy) {
  const double a = std::cos(-sy) / std::cos(sy);
  const double b = -(a * std::tan(sx));
  const double c = std::sin(-sy) / std::cos(sy);
  const double d = 1.0 - c * std::tan(sx);
  AffineMatrix m{d, -b, 0.0, -c, a, 0.0};
  m[2] += cx - m[0] * (cx + tx) - m[1] * (cy + ty);
  m[5] += cy - m[3] * (cx + tx) - m[4] * (cy + ty);
  return m;
}

// There and back through degrees, as the values go in Python.
double shear_angle(double tangent) {
  const double degrees = std::atan(tangent) * (180.0 / kPi);
  return degrees * (kPi / 180.0);
}

// Python's round(value, 15), which is exact in decimals.
double round_to_15_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.15f", value);
  return std::strtod(text, nullptr);
}

int32_t to_fixed(double value) { return int32_t(std::floor(value * 65536.0 + 0.5)); }

template <int kChannels>
void affine_nearest(const uint8_t* source, const Pixels& p, const AffineMatrix& m) {
  const int32_t dx = to_fixed(m[0]), dy = to_fixed(m[3]);
  int32_t row_x = to_fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), row_y = to_fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int y = 0; y < p.height; ++y) {
    int32_t fixed_x = row_x, fixed_y = row_y;
    uint8_t* out = p.row(y);
    for (int x = 0; x < p.width; ++x, out += kChannels) {
      const int from_x = fixed_x >> 16, from_y = fixed_y >> 16;
      fixed_x += dx, fixed_y += dy;
      const bool inside = unsigned(from_x) < unsigned(p.width) && unsigned(from_y) < unsigned(p.height);
      const uint8_t* const from =
          source + (inside ? (size_t(from_y) * size_t(p.width) + size_t(from_x)) * kChannels : 0);
      for (int c = 0; c < kChannels; ++c) out[c] = inside ? from[c] : uint8_t{0};
    }
    row_x += to_fixed(m[1]), row_y += to_fixed(m[4]);
  }
}

double between(double a, double b, double at) { return a + (b - a) * at; }

double between(double v1, double v2, double v3, double v4, double at) {  // Keys, a = -1
  const double p2 = -v1 + v3, p3 = 2 * (v1 - v2) + v3 - v4, p4 = -v1 + v2 - v3 + v4;
  return v2 + at * (p2 + at * (p3 + at * p4));
}

// The pixels about a place: the first column and row, and the place between them.
struct Place {
  int x, y;
  double dx, dy;
};

template <int kChannels>
void bilinear_pixel(const uint8_t* source, const Pixels& p, const Place& at, uint8_t* out) {
  const size_t left = size_t(std::clamp(at.x, 0, p.width - 1)) * kChannels;
  const size_t right = size_t(std::clamp(at.x + 1, 0, p.width - 1)) * kChannels;
  const uint8_t* const upper = source + size_t(std::clamp(at.y, 0, p.height - 1)) * p.stride();
  const uint8_t* const lower = source + size_t(std::clamp(at.y + 1, 0, p.height - 1)) * p.stride();
  for (int c = 0; c < kChannels; ++c) {
    const double v1 = between(upper[left + size_t(c)], upper[right + size_t(c)], at.dx);
    const double v2 = between(lower[left + size_t(c)], lower[right + size_t(c)], at.dx);
    out[c] = uint8_t(between(v1, v2, at.dy));
  }
}

template <int kChannels>
void bicubic_pixel(const uint8_t* source, const Pixels& p, const Place& at, uint8_t* out) {
  const uint8_t* rows[4];
  size_t columns[4];
  for (int i = 0; i < 4; ++i) {
    columns[i] = size_t(std::clamp(at.x - 1 + i, 0, p.width - 1)) * kChannels;
    rows[i] = source + size_t(std::clamp(at.y - 1 + i, 0, p.height - 1)) * p.stride();
  }
  for (int c = 0; c < kChannels; ++c) {
    double v[4];
    for (int i = 0; i < 4; ++i) {
      const uint8_t* const r = rows[i] + c;
      v[i] = between(r[columns[0]], r[columns[1]], r[columns[2]], r[columns[3]], at.dx);
    }
    out[c] = uint8_t(std::clamp(between(v[0], v[1], v[2], v[3], at.dy), 0.0, 255.0));
  }
}

template <int kChannels, auto kPixel>
void affine_smooth(const uint8_t* source, const Pixels& p, const AffineMatrix& m) {
  for (int y = 0; y < p.height; ++y) {
    uint8_t* out = p.row(y);
    for (int x = 0; x < p.width; ++x, out += kChannels) {
      const double from_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
      const double from_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
      if (!(from_x >= 0.0 && from_x < p.width && from_y >= 0.0 && from_y < p.height)) {
        std::fill_n(out, kChannels, uint8_t{0});
        continue;
      }
      const double left = std::floor(from_x - 0.5), top = std::floor(from_y - 0.5);
      kPixel(source, p, {int(left), int(top), from_x - 0.5 - left, from_y - 0.5 - top}, out);
    }
  }
}

template <int kChannels>
void affine_of(const uint8_t* source, const Pixels& p, const AffineMatrix& m, Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::nearest:
      return affine_nearest<kChannels>(source, p, m);
    case Interpolation::bilinear:
      return affine_smooth<kChannels, bilinear_pixel<kChannels>>(source, p, m);
    case Interpolation::bicubic:
      return affine_smooth<kChannels, bicubic_pixel<kChannels>>(source, p, m);
  }
}

}  // namespace

AffineMatrix shear_x_matrix(double tangent) { return inverse_matrix(0, 0, 0, 0, shear_angle(tangent), 0); }
AffineMatrix shear_y_matrix(double tangent) { return inverse_matrix(0, 0, 0, 0, 0, shear_angle(tangent)); }

AffineMatrix translate_matrix(const Pixels& picture, int right, int down) {
  return inverse_matrix(picture.width * 0.5, picture.height * 0.5, right, down, 0, 0);
}

AffineMatrix rotate_matrix(const Pixels& picture, double degrees) {
  double turn = std::fmod(degrees, 360.0);
  if (turn < 0) turn += 360.0;
  const double angle = -(turn * (kPi / 180.0));
  const double cosine = round_to_15_digits(std::cos(angle)), sine = round_to_15_digits(std::sin(angle));
  const double opposite = round_to_15_digits(-std::sin(angle));
  const double cx = picture.width / 2.0, cy = picture.height / 2.0;
  return {cosine,   sine,   cosine * -cx + sine * -cy + cx,  //
          opposite, cosine, opposite * -cx + cosine * -cy + cy};
}

void affine(const Pixels& picture, const AffineMatrix& matrix, Interpolation interpolation,
            Scratch& scratch) {
  scratch.bytes.assign(picture.data, picture.data + picture.bytes());
  if (picture.channels == 3)
    affine_of<3>(scratch.bytes.data(), picture, matrix, interpolation);
  else
    affine_of<1>(scratch.bytes.data(), picture, matrix, interpolation);
}

}  // namespace ren::data
