// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <gtest/gtest.h>

#include "renaissance_c.h"

#define SIZE(type, bytes) static_assert(sizeof(type) == bytes, "size of " #type)
#define WAS(type, bytes) static_assert(sizeof(type) > bytes, "former size of " #type)
#define AT(type, field, bytes) static_assert(offsetof(type, field) == bytes, "place of " #type "." #field)
#include "capi/abi.h"

// The assertions above are the test; here is what can only be seen at run time.
TEST(Abi, InitMacrosSetTheSizeAndClearTheRest) {
  const ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
  EXPECT_EQ(options.struct_size, sizeof(ren_trainer_options));
  EXPECT_EQ(options.device, nullptr);
  EXPECT_EQ(options.learning_rate, 0.0);
}

TEST(Abi, VersionIsTheHeaders) {
  EXPECT_EQ(ren_abi_version(), REN_ABI_VERSION);
  EXPECT_STRNE(ren_version(), "");
  EXPECT_STREQ(ren_status_name(REN_ERROR_UNSUPPORTED), "unsupported");
  EXPECT_STREQ(ren_status_name(12345), "?");
  EXPECT_STREQ(ren_status_name(-12345), "?");
}
