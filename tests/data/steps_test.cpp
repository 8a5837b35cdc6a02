// SPDX-License-Identifier: Apache-2.0
// The transforms behind the crop against what torchvision makes of the same PIL images
// (make_transform_fixtures.py).
#include <zlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/augment/affine.h"
#include "data/augment/auto_augment.h"
#include "data/augment/color.h"
#include "data/augment/filter.h"
#include "data/augment/step_runner.h"
#include "data/augment/transform.h"
#include "data/support.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

using nlohmann::json;

std::string transform_fixture(const std::string& name) {
  return read_file(std::string(REN_FIXTURES) + "/transforms/" + name);
}

const json& fixture_index() {
  static const json index = json::parse(transform_fixture("index.json"));
  return index;
}

Pixels pixels_of(Image& image) { return {image.data(), image.width(), image.height(), image.channels()}; }

std::string copy_of(const Image& image) {
  return {reinterpret_cast<const char*>(image.data()), image.bytes()};
}

const std::map<std::string, AutoOp>& auto_ops() {
  static const std::map<std::string, AutoOp> ops = {{"Identity", AutoOp::identity},
                                                    {"ShearX", AutoOp::shear_x},
                                                    {"ShearY", AutoOp::shear_y},
                                                    {"TranslateX", AutoOp::translate_x},
                                                    {"TranslateY", AutoOp::translate_y},
                                                    {"Rotate", AutoOp::rotate},
                                                    {"Brightness", AutoOp::brightness},
                                                    {"Color", AutoOp::color},
                                                    {"Contrast", AutoOp::contrast},
                                                    {"Sharpness", AutoOp::sharpness},
                                                    {"Posterize", AutoOp::posterize},
                                                    {"Solarize", AutoOp::solarize},
                                                    {"AutoContrast", AutoOp::auto_contrast},
                                                    {"Equalize", AutoOp::equalize}};
  return ops;
}

Interpolation interpolation_of(const json& name) {
  return name == "nearest"    ? Interpolation::nearest
         : name == "bilinear" ? Interpolation::bilinear
                              : Interpolation::bicubic;
}

Step step_of(StepKind kind, std::initializer_list<double> values) {
  Step step = Step::with_defaults(kind);
  std::copy(values.begin(), values.end(), step.values.begin());
  return step;
}

void erase_by_step(const Pixels& picture, const json& a) {
  for (int y = a[0]; y < a[0].get<int>() + a[2].get<int>(); ++y)
    std::fill_n(picture.row(y) + a[1].get<int>() * picture.channels, a[3].get<int>() * picture.channels,
                a[4].get<uint8_t>());
}

void apply_function(const std::string& name, const json& a, const Pixels& picture) {
  Scratch scratch;
  if (auto_ops().count(name) > 0)
    return apply_auto_op(auto_ops().at(name), a[0], picture, interpolation_of(a[1]), scratch);
  if (name == "adjust_brightness") return adjust_brightness(picture, a[0]);
  if (name == "adjust_contrast") return adjust_contrast(picture, a[0]);
  if (name == "adjust_saturation") return adjust_saturation(picture, a[0], scratch);
  if (name == "adjust_sharpness") return adjust_sharpness(picture, a[0], scratch);
  if (name == "adjust_hue") return adjust_hue(picture, a[0]);
  if (name == "posterize") return posterize(picture, a[0]);
  if (name == "solarize") return solarize(picture, a[0]);
  if (name == "autocontrast") return autocontrast(picture);
  if (name == "equalize") return equalize(picture);
  if (name == "rgb_to_grayscale") return rgb_to_grayscale(picture);
  if (name == "gaussian_blur") return gaussian_blur(picture, a[0], a[1], scratch);
  if (name == "erase") return erase_by_step(picture, a);
  if (name == "vertical_flip") {
    const Step flip = step_of(StepKind::vertical_flip, {1});
    return StepRunner().run({&flip, 1}, RandomStream(1, 2, 3), picture);
  }
  FAIL() << name;
}

TEST(Transforms, GiveTorchvisionsPixels) {
  const std::string all = transform_fixture("expected.bin");
  int cases = 0;
  std::set<std::string> functions;
  for (const json& entry : fixture_index().at("cases")) {
    SCOPED_TRACE(entry.dump());
    Image image = decode_fixture(entry.at("file"), entry.at("channels"));
    const std::string name = entry.at("function");
    apply_function(name, entry.at("arguments"), pixels_of(image));
    const size_t at = entry.at("at");
    int differing = 0, worst = 0;
    for (size_t i = 0; i < image.bytes(); ++i) {
      const int d = std::abs(int(image.data()[i]) - int(uint8_t(all.at(at + i))));
      differing += d != 0, worst = std::max(worst, d);
    }
    // torchvision's blur is an FP32 convolution whose order of sums is the library's: what falls beside a
    // half may be rounded to the other side. Everything else is equal.
    EXPECT_LE(worst, name == "gaussian_blur" ? 1 : 0);
    EXPECT_LE(differing, name == "gaussian_blur" ? int(image.bytes() / 500) : 0);
    ++cases, functions.insert(name);
  }
  EXPECT_GE(cases, 200);
  EXPECT_EQ(functions.size(), 27u);
}

TEST(Transforms, HueTurnsEveryKindOfColour) {
  std::vector<uint8_t> cube(size_t{3} << 18), turned;
  for (size_t i = 0; i < cube.size() / 3; ++i) {
    cube[3 * i] = uint8_t(i % 64 * 4 + i / 7 % 4);
    cube[3 * i + 1] = uint8_t(i / 64 % 64 * 4 + i / 64 / 3 % 4);
    cube[3 * i + 2] = uint8_t(i / 4096 * 4 + i % 4);
  }
  for (const json& entry : fixture_index().at("hue")) {
    turned = cube;
    adjust_hue({turned.data(), 512, 512, 3}, entry.at("shift"));
    EXPECT_EQ(crc32(0, turned.data(), uInt(turned.size())), entry.at("crc").get<uLong>()) << entry.dump();
  }
}

TEST(Transforms, MagnitudesAreTorchvisions) {
  int tables = 0;
  for (const json& entry : fixture_index().at("magnitudes")) {
    SCOPED_TRACE(entry.at("transform").get<std::string>() + " " + entry.at("op").get<std::string>());
    const AutoOp op = auto_ops().at(entry.at("op"));
    const int bins = entry.at("bins");
    EXPECT_EQ(has_sign(op), entry.at("signed").get<bool>());
    for (int bin = 0; bin < bins; ++bin) {
      const double value = entry.at("transform") == "RandAugment"
                               ? rand_augment_magnitude(op, bin, bins, entry.at("width"), entry.at("height"))
                               : trivial_augment_magnitude(op, bin, bins);
      // Equal but for the last bits of FP32: torch's loop adds steps within a vector register, so that its
      // own values depend on the processor.
      EXPECT_NEAR(value, entry.at("values")[size_t(bin)].get<double>(), 1.2e-7 * std::max(1.0, value)) << bin;
    }
    ++tables;
  }
  EXPECT_EQ(tables, 140);
}

// A list of steps on a picture whose bytes and position in the stream are fixed.
std::string run(const std::vector<Step>& steps, uint64_t index, int channels = 3) {
  Image picture = make_picture(24, 20, channels, 3);
  StepRunner().run(steps, RandomStream(5, 9, index), pixels_of(picture));
  return copy_of(picture);
}

TEST(Steps, HappenAsOftenAsTheyShould) {
  for (const StepKind kind : {StepKind::vertical_flip, StepKind::random_grayscale, StepKind::random_erasing,
                              StepKind::auto_contrast}) {
    SCOPED_TRACE(info_of(kind).name);
    const std::string plain = run({}, 0);
    for (const double chance : {0.0, 0.3, 1.0}) {
      int changed = 0;
      for (uint64_t i = 0; i < 400; ++i) changed += run({step_of(kind, {chance})}, i) != plain;
      if (chance == 0 || chance == 1)
        EXPECT_EQ(changed, int(400 * chance));
      else
        EXPECT_NEAR(changed, 120, 46);  // five standard deviations
    }
  }
}

// What a step draws depends on the sample and on the step's kind, not on the list that it stands in.
TEST(Steps, DrawTheSameWhateverStandsBeside) {
  const Step erasing = step_of(StepKind::random_erasing, {1});
  const Step flip = step_of(StepKind::vertical_flip, {0});  // draws, changes nothing
  const Step gray = step_of(StepKind::random_grayscale, {0});
  for (uint64_t i = 0; i < 50; ++i) {
    const std::string alone = run({erasing}, i);
    EXPECT_EQ(run({flip, gray, erasing}, i), alone);
    EXPECT_EQ(run({erasing, gray}, i), alone);
    EXPECT_NE(run({erasing}, i + 1), alone);
  }
}

// The crop and the mirroring of a sample stay where a step is added, and the step's picture is made of
// theirs.
TEST(Steps, LeaveTheCropAlone) {
  const Image picture = make_picture(60, 50, 3, 8);
  Augmentation plain;
  plain.mode = Augmentation::Mode::random_resized_crop;
  plain.flip = 0.5f;
  Augmentation more = plain;
  more.steps = {step_of(StepKind::color_jitter, {0.4, 0.4, 0.4, 0.1}), step_of(StepKind::vertical_flip, {1})};
  Transformer a(plain, 20, 24, 3), b(more, 20, 24, 3);
  for (uint64_t i = 0; i < 20; ++i) {
    Image first(24, 20, 3), second(24, 20, 3);
    RandomStream random_a(1, 2, i), random_b(1, 2, i);
    a.finish(a.prepare(picture), random_a, first.data());
    b.finish(b.prepare(picture), random_b, second.data());
    StepRunner().run(more.steps, RandomStream(1, 2, i), pixels_of(first));
    EXPECT_EQ(copy_of(first), copy_of(second));
  }
}

TEST(Steps, TakeGrayPicturesToo) {
  for (const StepInfo& info : step_infos()) {
    Step step = Step::with_defaults(info.kind);
    if (info.kind == StepKind::gaussian_blur) step.values[0] = 5;
    if (info.kind == StepKind::color_jitter) step.values = {0.4, 0.4, 0.4, 0.1};
    step.validate();
    int changed = 0;
    for (uint64_t i = 0; i < 40; ++i) changed += run({step}, i, 1) != run({}, i, 1);
    EXPECT_EQ(changed == 0, info.kind == StepKind::random_grayscale) << info.name;
  }
}

TEST(ColorJitter, StaysWithinItsFactors) {
  Image gray(8, 8, 3);
  for (uint64_t i = 0; i < 200; ++i) {
    std::fill_n(gray.data(), gray.bytes(), uint8_t{100});
    const Step jitter = step_of(StepKind::color_jitter, {0.4, 0, 0, 0});
    StepRunner().run({&jitter, 1}, RandomStream(5, 9, i), pixels_of(gray));
    EXPECT_GE(gray.data()[0], 59);
    EXPECT_LE(gray.data()[0], 140);
  }
}

TEST(RandomErasing, FollowsItsDistribution) {
  const Step step = Step::with_defaults(StepKind::random_erasing);
  double area = 0, log_ratio = 0;
  const int draws = 10000;
  for (int i = 0; i < draws; ++i) {
    RandomStream random(5, 9, uint64_t(i));
    const ErasedRegion r = draw_erased_region(96, 64, step, random);
    ASSERT_GT(r.width, 0);
    ASSERT_LT(r.width, 96);
    ASSERT_LT(r.height, 64);
    ASSERT_LE(r.left + r.width, 96);
    ASSERT_LE(r.top + r.height, 64);
    area += double(r.width) * r.height / (96.0 * 64.0);
    log_ratio += std::log(double(r.height) / r.width);
  }
  // Means that torchvision's make_params has for this size.
  EXPECT_NEAR(area / draws, 0.170, 0.004);
  EXPECT_NEAR(log_ratio / draws, -0.054, 0.03);
}

TEST(AutoAugment, UsesEveryOperationInBothDirections) {
  std::set<std::string> results;
  const Step trivial = Step::with_defaults(StepKind::trivial_augment_wide);
  for (uint64_t i = 0; i < 2000; ++i) results.insert(run({trivial}, i));
  EXPECT_GT(results.size(),
            250u);  // 9 operations of 60 magnitudes, with those of whole pixels and bits alike
  const Step none = step_of(StepKind::rand_augment, {0});
  EXPECT_EQ(run({none}, 0), run({}, 0));
}

std::string reason(StepKind kind, std::initializer_list<double> values) {
  return error_of([&] { step_of(kind, values).validate(); }).what();
}

TEST(Steps, TellWhatIsAllowed) {
  EXPECT_NE(reason(StepKind::vertical_flip, {1.5}).find("p is 1.5, allowed is p from 0 to 1"),
            std::string::npos);
  EXPECT_NE(reason(StepKind::color_jitter, {0, 0, 0, 0.6}).find("hue from 0 to 0.5"), std::string::npos);
  EXPECT_NE(reason(StepKind::color_jitter, {0, 0, 0, 0}).find("changes nothing"), std::string::npos);
  EXPECT_NE(reason(StepKind::gaussian_blur, {}).find("kernel_size"), std::string::npos);
  EXPECT_NE(reason(StepKind::gaussian_blur, {4}).find("odd"), std::string::npos);
  EXPECT_NE(reason(StepKind::gaussian_blur, {3, 2, 1}).find("smaller one comes first"), std::string::npos);
  EXPECT_NE(reason(StepKind::gaussian_blur, {3, 0, 1}).find("sigma from 0.001"), std::string::npos);
  EXPECT_NE(reason(StepKind::rand_augment, {2, 31}).find("0 to 30"), std::string::npos);
  EXPECT_NE(reason(StepKind::rand_augment, {1.5}).find("whole"), std::string::npos);
  EXPECT_NE(reason(StepKind::trivial_augment_wide, {1}).find("from 2 to 1000"), std::string::npos);
  EXPECT_NE(reason(StepKind::random_erasing, {0.5, 0, 2}).find("scale from 0 to 1"), std::string::npos);
  EXPECT_NE(reason(StepKind::auto_contrast, {std::nan("")}).find("p"), std::string::npos);

  Augmentation twice;
  twice.steps = {Step::with_defaults(StepKind::vertical_flip), Step::with_defaults(StepKind::vertical_flip)};
  EXPECT_NE(std::string(error_of([&] { twice.validate(); }).what()).find("more than once"),
            std::string::npos);
  Augmentation blurred;
  blurred.steps = {step_of(StepKind::gaussian_blur, {17})};
  EXPECT_NE(std::string(error_of([&] { Transformer(blurred, 8, 9, 3); }).what()).find("15 at most"),
            std::string::npos);
  EXPECT_NO_THROW(Transformer(blurred, 9, 9, 3));
}

}  // namespace
}  // namespace ren::data::test
