// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "importer/operators.h"
#include "support.h"

namespace ren::importer::testing {
namespace {

TEST(Operators, AreFoundByName) {
  for (const OperatorInfo& info : operators()) {
    ASSERT_NE(find_operator(info.name), nullptr) << info.name << " is out of order";
    EXPECT_STREQ(find_operator(info.name)->name, info.name);
  }
  EXPECT_EQ(find_operator("Nonsense"), nullptr);
}

// Set REN_UPDATE_DOCS=1 to write the page anew.
TEST(Operators, DocumentationIsUpToDate) {
  const std::string path = std::string(REN_SOURCE_DIR) + "/docs/operators.md";
  if (std::getenv("REN_UPDATE_DOCS")) write_file(path, operators_markdown());
  EXPECT_EQ(read_file(path), operators_markdown()) << "run test_importer with REN_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace ren::importer::testing
