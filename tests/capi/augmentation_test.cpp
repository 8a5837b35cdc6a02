// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "capi/augmentation_text.h"
#include "engine/base/rng.h"
#include "engine/base/status.h"

namespace ren::capi {
namespace {

using Mode = data::Augmentation::Mode;

TEST(AugmentationText, IsUnderstood) {
  auto a = parse_augmentation("flip,pad-crop:4", 32, 32);
  EXPECT_EQ(a.mode, Mode::pad_crop);
  EXPECT_EQ(a.padding, 4);
  EXPECT_EQ(a.flip, 0.5f);
  a = parse_augmentation("random-resized-crop:0.35-0.9,flip:0.25,bicubic", 224, 224);
  EXPECT_EQ(a.mode, Mode::random_resized_crop);
  EXPECT_EQ(a.min_scale, 0.35f);
  EXPECT_EQ(a.max_scale, 0.9f);
  EXPECT_EQ(a.flip, 0.25f);
  EXPECT_EQ(a.filter, data::Filter::bicubic);
  EXPECT_EQ(parse_augmentation("center-crop:256", 224, 224).resize_short, 256);
  EXPECT_EQ(parse_augmentation("exact", 32, 32).mode, Mode::none);
  EXPECT_FALSE(parse_augmentation("none", 32, 32).is_random());
  EXPECT_TRUE(parse_augmentation("auto", 32, 32).is_random());
}

TEST(AugmentationText, NonsenseIsRefused) {
  for (const char* text :
       {"", ",", "flop", "flip:", "flip:x", "flip:1.5", "flip:nan", "pad-crop:2.5", "pad-crop:-1",
        "pad-crop:1e30", "none,flip", "auto:3", "pad-crop,random-resized-crop",
        "random-resized-crop:0.1-0.2-0.3", "random-resized-crop:0.9-0.1", "center-crop:big"})
    EXPECT_THROW(parse_augmentation(text, 32, 32), Error) << text;
}

using data::Step;
using data::StepKind;

std::string reason(const std::string& text) {
  try {
    parse_augmentation(text, 32, 32);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error: " << text;
  return {};
}

void expect_reason(const std::string& text, const std::string& part) {
  EXPECT_NE(reason(text).find(part), std::string::npos) << text << ": " << reason(text);
}

TEST(AugmentationText, TransformsTakeTheirNumbers) {
  const auto a = parse_augmentation(
      "random-resized-crop:0.2-1,0.5-2,flip,vertical-flip:0.1,color-jitter:0.4,0.3,.2,0.1,random-grayscale,"
      "gaussian-blur:9,1.5,random-erasing:0.25,0.1,0.2,0.5,2,124,116,104,rand-augment:3,7:bilinear,"
      "trivial-augment-wide,auto-contrast:1,bicubic",
      224, 224);
  EXPECT_EQ(a.mode, Mode::random_resized_crop);
  EXPECT_EQ(a.min_ratio, 0.5f);
  EXPECT_EQ(a.max_ratio, 2.0f);
  EXPECT_EQ(a.flip, 0.5f);
  EXPECT_EQ(a.filter, data::Filter::bicubic);
  ASSERT_EQ(a.steps.size(), 8u);
  using Values = std::array<double, Step::kMostValues>;
  EXPECT_EQ(a.steps[0].kind, StepKind::vertical_flip);
  EXPECT_EQ(a.steps[0].values, (Values{0.1}));
  EXPECT_EQ(a.steps[1].values, (Values{0.4, 0.3, 0.2, 0.1}));
  EXPECT_EQ(a.steps[2].values, (Values{0.1}));
  EXPECT_EQ(a.steps[3].values, (Values{9, 1.5, 1.5}));
  EXPECT_EQ(a.steps[4].values, (Values{0.25, 0.1, 0.2, 0.5, 2, 124, 116, 104}));
  EXPECT_EQ(a.steps[5].values, (Values{3, 7, 31}));
  EXPECT_EQ(a.steps[5].interpolation, data::Interpolation::bilinear);
  EXPECT_EQ(a.steps[6].values, (Values{31}));
  EXPECT_EQ(a.steps[6].interpolation, data::Interpolation::nearest);
  EXPECT_EQ(a.steps[7].kind, StepKind::auto_contrast);
  EXPECT_EQ(parse_augmentation("rand-augment:bicubic", 32, 32).steps[0].interpolation,
            data::Interpolation::bicubic);
}

TEST(AugmentationText, AutoTakesMoreTransforms) {
  const auto a = parse_augmentation("auto,rand-augment:2,9", 32, 32);
  EXPECT_EQ(a.mode, Mode::pad_crop);
  EXPECT_EQ(a.flip, 0.5f);
  EXPECT_EQ(a.steps.size(), 1u);
  expect_reason("auto,flip", "more than once");
  expect_reason("auto,exact", "only one way to crop");
  expect_reason("flip,auto", "first");
}

TEST(AugmentationText, ResizeComesBeforeItsCrop) {
  auto a = parse_augmentation("resize:40,pad-crop:0,flip", 32, 32);
  EXPECT_EQ(a.mode, Mode::pad_crop);
  EXPECT_EQ(a.resize_short, 40);
  a = parse_augmentation("resize:40,center-crop", 32, 32);
  EXPECT_EQ(a.mode, Mode::resize_center_crop);
  EXPECT_FALSE(a.keep_exact_size);
  EXPECT_EQ(parse_augmentation("resize,flip", 32, 32).mode, Mode::resize);
  expect_reason("resize:40", "a crop to the model's size has to be given");
  expect_reason("pad-crop,resize:40", "before the crop");
  expect_reason("resize:40,random-resized-crop", "only one way to crop");
  expect_reason("resize:40,center-crop:50", "twice");
  expect_reason("resize:0,center-crop", "1 to 65535");
  expect_reason("color-jitter:1,pad-crop", "has to stand before 'color-jitter'");
  expect_reason("resize:40,rand-augment,center-crop", "behind the crop");
}

TEST(AugmentationText, TheTextsOfAnAugmentationAreReadAsIt) {
  for (const char* text :
       {"none", "auto", "exact", "flip:0.25", "center-crop:256", "resize:40,center-crop",
        "resize:40,pad-crop:2", "resize,bicubic", "random-resized-crop:0.2-0.9,0.5-2,flip",
        "pad-crop:3,vertical-flip,auto-contrast:0.3",
        "flip,color-jitter:0.4,0.3,0.2,0.1,random-grayscale:0.2,gaussian-blur:5,0.1,1",
        "random-erasing:0.25,0.02,0.33,0.3,3.3,7", "auto,rand-augment:2,9,31:bilinear,random-erasing",
        "trivial-augment-wide:11:bicubic"}) {
    const auto a = parse_augmentation(text, 32, 32);
    const std::string all = augmentation_text(a);
    EXPECT_EQ(parse_augmentation(all, 32, 32).text(), a.text()) << all;
  }
}

TEST(AugmentationText, MixesComeLast) {
  auto a = parse_augmentation("auto,mixup:0.2,cutmix:1.5", 32, 32);
  EXPECT_EQ(a.mode, Mode::pad_crop);
  EXPECT_EQ(a.mixup, 0.2);
  EXPECT_EQ(a.cutmix, 1.5);
  a = parse_augmentation("cutmix", 32, 32);
  EXPECT_EQ(a.mixup, 0);
  EXPECT_EQ(a.cutmix, 1);       // torchvision's default
  EXPECT_FALSE(a.is_random());  // its pictures are not
  EXPECT_EQ(a.text(), parse_augmentation("none", 32, 32).text());
  for (const char* text :
       {"mixup:0.2", "flip,cutmix", "auto,rand-augment,mixup:0.2,cutmix:1", "resize,bicubic,mixup"}) {
    a = parse_augmentation(text, 32, 32);
    const auto again = parse_augmentation(augmentation_text(a), 32, 32);
    EXPECT_EQ(again.mixup, a.mixup) << text;
    EXPECT_EQ(again.cutmix, a.cutmix) << text;
    EXPECT_EQ(again.text(), a.text()) << text;
  }
  for (const char* alpha : {"0", "-1", "0.0001", "1001", "1e300"})
    expect_reason(fmt::format("mixup:{}", alpha), "alpha from 0.001 to 1000");
  expect_reason("mixup:nan", "alpha from 0.001 to 1000");
  expect_reason("mixup:", "not a number");
  expect_reason("mixup:0.2,0.3", "not a number");
  expect_reason("mixup:0.2,mixup:0.2", "more than once");
  expect_reason("cutmix,mixup,cutmix", "more than once");
  for (const char* late : {"flip", "pad-crop", "resize:40", "rand-augment", "vertical-flip"})
    expect_reason(fmt::format("mixup:0.2,{}", late), "before MixUp and CutMix");
  expect_reason("mixup,auto", "first");
  expect_reason("resize:40,mixup", "behind the crop");
  expect_reason("none,mixup", "stands alone");
}

TEST(AugmentationText, SaysWhatIsAllowed) {
  expect_reason("spin", "rand-augment[:NUM_OPS[,MAGNITUDE[,NUM_MAGNITUDE_BINS]]][:nearest|bilinear|bicubic]");
  expect_reason("color-jitter", "changes nothing");
  expect_reason("color-jitter:0.1,0.1,0.1,0.9", "hue from 0 to 0.5");
  expect_reason("color-jitter:0.1,0.1,0.1,0.1,0.1", "too many numbers");
  expect_reason("gaussian-blur", "kernel_size from 1 to 255 (a whole number) has to be given");
  expect_reason("gaussian-blur:4", "odd");
  expect_reason("rand-augment:2,31", "0 to 30");
  expect_reason("rand-augment:2,9:lanczos", "nearest|bilinear|bicubic");
  expect_reason("random-erasing:0.5,0.1,0.2,1,2,3,4", "takes 3 numbers or one");
  expect_reason("vertical-flip:x", "it is written vertical-flip[:P]");
  expect_reason("vertical-flip:", "not a number");
  expect_reason("vertical-flip:1:2", "it is written");
  expect_reason("vertical-flip,vertical-flip", "more than once");
}

TEST(AugmentationJson, MixesAreTorchvisions) {
  auto a =
      parse_augmentation(R"([{"name": "RandomHorizontalFlip"}, {"name": "MixUp", "alpha": 0.2}])", 32, 32);
  EXPECT_EQ(a.flip, 0.5f);
  EXPECT_EQ(a.mixup, 0.2);
  EXPECT_EQ(a.cutmix, 0);
  EXPECT_EQ(parse_augmentation(R"([{"name": "CutMix"}])", 32, 32).cutmix, 1);
  const std::string begin = R"([{"name": "RandomChoice", "transforms": )";
  a = parse_augmentation(begin + R"([{"name": "CutMix"}, {"name": "MixUp", "alpha": 0.2}]}])", 32, 32);
  EXPECT_EQ(a.mixup, 0.2);
  EXPECT_EQ(a.cutmix, 1);
  expect_reason(R"([{"name": "MixUp"}, {"name": "CutMix"}])", "RandomChoice");
  expect_reason(R"([{"name": "MixUp"}, {"name": "MixUp"}])", "transform 2 (MixUp)");
  expect_reason(R"([{"name": "MixUp", "alpha": 0}])", "alpha from 0.001 to 1000");
  expect_reason(R"([{"name": "MixUp", "num_classes": 10}])", "'num_classes' is not known; there are alpha");
  expect_reason(R"([{"name": "MixUp"}, {"name": "RandAugment"}])", "before MixUp and CutMix");
  expect_reason(R"([{"name": "RandomChoice"}])", "transforms has to be given");
  expect_reason(begin + "3}]", "transforms has to be given");
  expect_reason(begin + "[]}]", "0 transforms");
  expect_reason(begin + R"([{"name": "MixUp"}]}])", "1 transforms");
  expect_reason(begin + R"([{"name": "MixUp"}, {"name": "MixUp"}]}])", "more than once");
  expect_reason(begin + R"([{"name": "RandAugment"}, {"name": "MixUp"}]}])", "MixUp and CutMix alone");
  expect_reason(begin + R"([{"name": "MixUp", "beta": 1}, {"name": "CutMix"}]}])", "'beta' is not known");
  expect_reason(begin + R"([{"name": "MixUp"}, {"name": "CutMix"}], "p": [0.1, 0.9]}])", "'p' is not known");
}

TEST(AugmentationJson, ReadsTorchvisionsTransforms) {
  const auto a = parse_augmentation(
      R"([{"name": "RandomResizedCrop", "size": 32, "scale": [0.2, 1], "interpolation": "bicubic"},
          {"name": "RandomHorizontalFlip"},
          {"name": "ColorJitter", "brightness": 0.4, "hue": 0.1},
          {"name": "RandAugment", "num_ops": 1, "magnitude": 5, "interpolation": "bilinear"},
          {"name": "GaussianBlur", "kernel_size": 3, "sigma": [0.1, 2.0]},
          {"name": "RandomErasing", "p": 0.25, "value": [124, 116, 104]}])",
      32, 32);
  EXPECT_EQ(augmentation_text(a),
            "random-resized-crop:0.2-1,flip:0.5,color-jitter:0.4,0,0,0.1,rand-augment:1,5,31:bilinear,"
            "gaussian-blur:3,0.1,2,random-erasing:0.25,0.02,0.33,0.3,3.3,124,116,104,bicubic");
  const auto text = [](const char* json) { return augmentation_text(parse_augmentation(json, 32, 48)); };
  EXPECT_EQ(text(R"([{"name": "Resize", "size": 40}, {"name": "CenterCrop", "size": [32, 48]}])"),
            "resize:40,center-crop");
  EXPECT_EQ(text(R"([{"name": "Resize", "size": 40}, {"name": "RandomCrop", "padding": 4}])"),
            "resize:40,pad-crop:4");
  EXPECT_EQ(text(R"([{"name": "RandomCrop"}, {"name": "RandomHorizontalFlip", "p": 0.1}])"),
            "pad-crop:0,flip:0.1");
  EXPECT_EQ(text(R"([{"name": "Resize", "size": [32, 48]}, {"name": "TrivialAugmentWide"}])"),
            "resize,trivial-augment-wide:31:nearest");
}

TEST(AugmentationJson, NamesTheTransformThatIsWrong) {
  const auto expect = [](const char* json, const char* part) { expect_reason(json, part); };
  expect("[", "not JSON");
  // Deep enough to end the stack of anything that recurses over it.
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{\"a\":", "}"}}) {
    std::string nested = "[{\"name\": \"RandomHorizontalFlip\", \"p\": ";
    for (int i = 0; i < 200000; ++i) nested += open;
    nested += "1";
    for (int i = 0; i < 200000; ++i) nested += close;
    expect((nested + "}]").c_str(), "nested more than 8 deep");
  }
  expect("[]", "a list of transforms");
  expect(R"([1])", "transform 1: it has to be an object with a name");
  expect(R"([{"name": 3}])", "transform 1: it has to be an object with a name");
  expect(R"([{"name": "Rotate"}])",
         "transform 1 (Rotate): 'Rotate' is not known; there are RandomResizedCrop");
  expect(R"([{"name": "ToTensor"}])", "transform 1 (ToTensor): leave it out");
  expect(R"([{"name": "Normalize", "mean": [0.5]}])", "name mean and deviation with --normalize");
  expect(R"([{"name": "RandomVerticalFlip"}, {"name": "RandAugment", "ops": 2}])",
         "transform 2 (RandAugment): 'ops' is not known; there are interpolation, magnitude, "
         "num_magnitude_bins, "
         "num_ops");
  expect(R"([{"name": "RandAugment", "magnitude": 31}])", "0 to 30");
  expect(R"([{"name": "RandAugment", "magnitude": "9"}])", "magnitude takes a number, not \"9\"");
  expect(R"([{"name": "RandAugment", "magnitude": true}])", "magnitude takes a number, not true");
  expect(R"([{"name": "RandAugment", "interpolation": "lanczos"}])",
         "\"nearest\", \"bilinear\" and \"bicubic\"");
  expect(R"([{"name": "RandomErasing", "value": "random"}])", "a list of 3 numbers");
  expect(R"([{"name": "GaussianBlur"}])", "kernel_size");
  expect(R"([{"name": "RandomResizedCrop", "size": 224}])", "the model takes 32 x 32");
  expect(R"([{"name": "RandomResizedCrop", "scale": [0.5, 0.2]}])", "0 < min <= max <= 1");
  expect(R"([{"name": "RandomResizedCrop", "interpolation": "nearest"}])", "resizing has");
  expect(R"([{"name": "CenterCrop"}])", "a Resize to a short side has to stand before it");
  expect(R"([{"name": "Resize"}])", "size has to be given");
  expect(R"([{"name": "Resize", "size": 40}])", "a crop to the model's size has to be given");
  expect(R"([{"name": "RandomCrop", "padding": 1.5}])", "whole numbers");
  expect(R"([{"name": "MixUp", "alpha": 0.2, "alpha": 0.4}])",
         "transform 1: 'alpha' is given more than once");
  expect(R"([{"name": "MixUp", "name": "CutMix"}])", "transform 1: 'name' is given more than once");
  expect(
      R"([{"name": "RandomVerticalFlip", "p": 0.5}, {"name": "RandomChoice", "transforms":
          [{"name": "MixUp"}, {"name": "CutMix", "alpha": 1, "alpha": 1}]}])",
      "transform 2: 'alpha' is given more than once");
  expect(R"([{"name": "ColorJitter", "hue": 0.1}, {"name": "RandomCrop"}])",
         "has to stand before 'color-jitter'");
}

TEST(AugmentationJson, ComesFromAFile) {
  const std::string path = (std::filesystem::temp_directory_path() / "ren_augmentation_test.json").string();
  std::ofstream(path) << R"([{"name": "RandomVerticalFlip", "p": 0.5}])";
  EXPECT_EQ(augmentation_text(parse_augmentation(path, 32, 32)), "vertical-flip:0.5");
  std::ofstream(path) << "nothing";
  expect_reason(path, "'" + path + "': not JSON");
  std::filesystem::remove(path);
  expect_reason(path, path);
}

// Damaged texts are understood or refused; what is understood can be told and read again.
TEST(AugmentationText, SurvivesDamage) {
  const std::string texts[] = {
      "random-resized-crop:0.2-0.9,0.5-2,flip:0.25,color-jitter:0.4,0.3,0.2,0.1,rand-augment:2,9,31:bilinear",
      "resize:40,pad-crop:2,gaussian-blur:5,0.1,1,random-erasing:0.25,0.02,0.33,0.3,3.3,7,bicubic",
      R"([{"name":"RandomResizedCrop","size":[32,32],"scale":[0.2,1]},{"name":"RandAugment","magnitude":5}])",
      R"([{"name":"Resize","size":40},{"name":"CenterCrop"},{"name":"RandomErasing","value":[1,2,3]}])"};
  int understood = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    RandomStream random(3, 4, i);
    std::string text = texts[i % std::size(texts)];
    for (uint32_t change = random.below(3); change < 3; ++change) {
      const size_t at = random.below(uint32_t(text.size()));
      const size_t from = random.below(uint32_t(text.size()));
      switch (random.below(4)) {
        case 0:
          text[at] = char(random.bits());
          break;
        case 1:
          text[at] = ",:-.[]{}\"09"[random.below(11)];
          break;
        case 2:
          text.erase(at, 1 + random.below(6));
          break;
        default:
          text.insert(at, text.substr(from, 1 + random.below(8)));
      }
      if (text.empty()) text = ",";
    }
    try {
      const auto a = parse_augmentation(text, 32, 32);
      ++understood;
      ASSERT_EQ(parse_augmentation(augmentation_text(a), 32, 32).text(), a.text()) << text;
    } catch (const Error& error) {
      ASSERT_FALSE(std::string_view(error.what()).empty()) << text;
    }
  }
  EXPECT_GT(understood, 200);
}

}  // namespace
}  // namespace ren::capi
