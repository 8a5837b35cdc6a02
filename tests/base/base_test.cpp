// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "engine/base/checksum.h"
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

TEST_F(FileTest, TheLongestNamesCanBeWritten) {
  for (const size_t length : {240u, 245u, 250u, 255u}) {
    const std::string name(length, 'n');
    write_file(path(name.c_str()), "new");
    EXPECT_EQ(read_file(path(name.c_str())), "new");
  }
  const std::string name(256, 'n');
  EXPECT_THROW(check_can_write(path(name.c_str()), 0), Error);
  EXPECT_THROW(AtomicFile(path(name.c_str())), Error);
  EXPECT_EQ(files(), 4u);
}

TEST_F(FileTest, LinksAreFollowedAndStay) {
  fs::create_directory(path("real"));
  fs::create_symlink("real/target", path("link"));
  fs::create_symlink("link", path("second"));
  for (const char* content : {"one", "two"}) {  // first what it leads to doesn't exist
    write_file(path("second"), content);
    EXPECT_EQ(read_file(path("real/target")), content);
  }
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(fs::is_symlink(path("second")));
  EXPECT_EQ(files(), 3u);
  EXPECT_THROW(AtomicFile(path("real")), Error);
  EXPECT_THROW(AtomicFile(path("real/")), Error);
  EXPECT_THROW(AtomicFile("/dev/null"), Error);
  fs::create_symlink("itself", path("itself"));
  EXPECT_THROW(AtomicFile(path("itself")), Error);
}

TEST_F(FileTest, PermissionsOfTheOldFileStay) {
  write_file(path("x"), "old");
  fs::permissions(path("x"), fs::perms::owner_read | fs::perms::owner_write);
  write_file(path("x"), "new");
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FileTest, SameFileSeesThroughLinks) {
  write_file(path("x"), "content");
  write_file(path("y"), "content");
  fs::create_symlink("x", path("soft"));
  fs::create_hard_link(path("x"), path("hard"));
  fs::create_directory_symlink(".", path("here"));
  const std::string up = "../" + folder_.filename().string() + "/x";
  for (const char* other : {"x", "soft", "hard", "./x", "here/x", up.c_str()})
    EXPECT_TRUE(same_file(path("x"), path(other))) << other;
  EXPECT_FALSE(same_file(path("x"), path("y")));
  EXPECT_TRUE(same_file(path("new"), path("here/./new")));  // neither exists
  EXPECT_FALSE(same_file(path("new"), path("newer")));
}

TEST_F(FileTest, WhatKilledWritersLeftIsRemovedByTheNextWrite) {
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(path("x"));
    file.write("half");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(files(), 1u);  // the killed one's
  write_file(path("other"), "another target leaves it alone");
  EXPECT_EQ(files(), 2u);
  {
    AtomicFile file(path("x"));  // of a living process: this one
    file.write("slow");
    EXPECT_EQ(files(), 2u);
    write_file(path("x"), "fast");
    EXPECT_EQ(files(), 3u);
  }
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(read_file(path("x")), "fast");
}

TEST_F(FileTest, TooLittleRoomIsToldBefore) {
  EXPECT_NO_THROW(check_can_write(path("x"), 1));
  EXPECT_THROW(check_can_write(path("x"), uint64_t{1} << 60), Error);
  EXPECT_THROW(check_can_write(path("no/such/folder"), 0), Error);
  EXPECT_EQ(files(), 0u);
}

TEST(Checksum, KnownAnswers) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xCBF43926u);  // the check value of CRC-32/ISO-HDLC
  EXPECT_EQ(crc32(0, "", 0), 0u);
  const std::string text = "some text of more than eight bytes";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32(crc32(0, text.data(), cut), text.data() + cut, text.size() - cut),
              crc32(0, text.data(), text.size()));
  Fnv64 hash;  // draft-eastlake-fnv: "foobar"
  hash.add_bytes("foobar");
  EXPECT_EQ(hash.hex(), "85944171f73967e8");
}

TEST_F(FileTest, AFlippedBitAnywhereIsNoticed) {
  const std::string values("12345678");
  write_safetensors(path("x"), {{"t", {"F32", {2}, values}}}, {{"k", "v"}}, true);
  const SafeTensorsFile file = SafeTensorsFile::read(path("x"));
  EXPECT_EQ(file.metadata_or("checksum", "").size(), 14u);
  const std::string good = read_file(path("x"));
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = char(bad[bit / 8] ^ (1 << bit % 8));
    write_file(path("bad"), bad);
    try {
      // what hides the checksum itself leaves a file without one, which its reader refuses
      EXPECT_FALSE(SafeTensorsFile::read(path("bad")).metadata_or("checksum", "").starts_with("crc32:"))
          << bit;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), StatusCode::invalid_data) << bit;
    }
  }
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
