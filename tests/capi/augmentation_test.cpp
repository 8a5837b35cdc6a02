// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "capi/augmentation_text.h"
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

}  // namespace
}  // namespace ren::capi
