// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace ren {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("ren_base_{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

// The known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox::generate({0, 0, 0, 0}, {0, 0}),
            (Philox::Counter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox::generate({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox::Counter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      Philox::generate({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Philox::Counter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(RandomStream, BelowIsUniformAndBounded) {
  RandomStream stream(1, 2, 3);
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) ++counts[stream.below(7)];
  for (const int c : counts) EXPECT_NEAR(c, 10000, 500);  // five standard deviations are 463
}

TEST(Half, RoundTripsEveryFiniteValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = from_f16(uint16_t(bits));
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(from_f16(to_f16(wide))));
      continue;
    }
    ASSERT_EQ(to_f16(wide), bits);
  }
}

TEST(Half, RoundsToNearestEvenLikeTheProcessor) {
  std::vector<float> values;
  for (float v = 1e-9f; v < 1e6f; v *= 1.0009f) {
    values.push_back(v);
    values.push_back(-v);
  }
  for (const float v :
       {65504.0f, 65519.9f, 65520.0f, 0.0f, -0.0f, 2049.0f, 2051.0f, std::numeric_limits<float>::infinity()})
    values.push_back(v);
  std::vector<uint16_t> whole(values.size());
  convert_from_f32(values.data(), DType::f16, whole.data(), values.size());  // F16C where there is one
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(whole[i], to_f16(values[i])) << values[i];
  EXPECT_EQ(to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(to_f16(2049.0f), to_f16(2048.0f));  // ties go to even
  EXPECT_EQ(to_f16(2051.0f), to_f16(2052.0f));
  EXPECT_EQ(to_bf16(1.00390625f), 0x3F80);  // a tie, to even
  EXPECT_EQ(to_bf16(1.01171875f), 0x3F82);
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<int> seen(size_t(count), 0);
    parallel_for(count, 3, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
    });
    for (const int s : seen) EXPECT_EQ(s, 1);
  }
}

TEST_F(FileTest, SafetensorsRoundTrip) {
  const float a[] = {1, 2, 3};
  const int64_t b[] = {-5, 6};
  const std::map<std::string, SafeTensor> tensors = {
      {"a", {"F32", {3, 1}, std::string_view(reinterpret_cast<const char*>(a), sizeof a)}},
      {"b", {"I64", {2}, std::string_view(reinterpret_cast<const char*>(b), sizeof b)}},
      {"empty", {"F32", {0}, {}}}};
  write_safetensors(path("x"), tensors, {{"k", "v \"quoted\""}});
  const SafeTensorsFile file = SafeTensorsFile::read(path("x"));
  EXPECT_EQ(to_doubles(file.at("a")), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(file.at("a").shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(to_int64(file.at("b")), (std::vector<int64_t>{-5, 6}));
  EXPECT_EQ(file.metadata_or("k", ""), "v \"quoted\"");
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_THROW(file.at("none"), Error);
  EXPECT_THROW(to_int64(file.at("a")), Error);
}

TEST_F(FileTest, DamagedSafetensorsAreRefused) {
  const float a[] = {1, 2, 3};
  write_safetensors(path("x"),
                    {{"a", {"F32", {3}, std::string_view(reinterpret_cast<const char*>(a), sizeof a)}}}, {});
  const std::string good = read_file(path("x"));
  for (size_t n = 0; n < good.size(); ++n) {  // cut short anywhere
    write_file(path("cut"), good.substr(0, n));
    EXPECT_THROW(SafeTensorsFile::read(path("cut")), Error) << n;
  }
  for (
      const char* header :
      {R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
       R"({"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,4]}})", R"([1])",
       R"({"a":3})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})"}) {
    const std::string text = header;
    const uint64_t size = text.size();
    write_file(path("bad"),
               std::string(reinterpret_cast<const char*>(&size), 8) + text + std::string(8, '\0'));
    EXPECT_THROW(SafeTensorsFile::read(path("bad")), Error) << header;
  }
}

TEST_F(FileTest, AbandonedWritesLeaveNothing) {
  write_file(path("x"), "old");
  {
    AtomicFile file(path("x"));
    file.write("new");
  }
  EXPECT_EQ(read_file(path("x")), "old");
  EXPECT_EQ(files(), 1u);
  EXPECT_THROW(AtomicFile(path("no/such/folder")), Error);
  EXPECT_THROW(read_file(path("none")), Error);
  EXPECT_THROW(read_file(folder_.string()), Error);
}

TEST_F(FileTest, AFullDiskIsAnErrorAndKeepsTheOldFile) {
  write_file(path("x"), "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);  // so that write() fails instead
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_file(path("x"), std::string(5000, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_file(path("x")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST(Problems, ListEverythingAtOnce) {
  Problems problems;
  problems.add("node 'a'", "is wrong", "fix it");
  problems.add("node 'b'", "is wrong too");
  try {
    problems.throw_if_any(StatusCode::invalid_model, "cannot load");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "cannot load (2 problems):\n  node 'a': is wrong -> fix it\n  node 'b': is wrong too");
  }
}

}  // namespace
}  // namespace ren
