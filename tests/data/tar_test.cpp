// SPDX-License-Identifier: Apache-2.0
// Tar archives: samples with labels, several archives, all forms of headers, and broken ones. Class folders
// in a tar are tested with those of folders and zips.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "data/dataset.h"
#include "data/mutation.h"
#include "data/source/labelled.h"
#include "data/support.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"

namespace ren::data::test {
namespace {

using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

std::string picture(uint32_t seed = 1) { return jpeg_of(8, 8, seed); }

Files samples(int first, int count) {
  Files files;
  for (int i = first; i < first + count; ++i) {
    files.emplace_back(fmt::format("{:04}.jpg", i), picture(uint32_t(i)));
    files.emplace_back(fmt::format("{:04}.cls", i), fmt::format("{}", i % 3));
  }
  return files;
}

Names paths_of(const Split& split) {
  Names paths;
  for (const int64_t file : split.files) paths.emplace_back(split.store->path(file));
  return paths;
}

class Tar : public ::testing::Test {
 protected:
  void expect_broken(const std::string& uri, const Names& texts, StatusCode code = StatusCode::invalid_data) {
    const Error error = error_of([&] { open_dataset(uri); });
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << "'" << text << "' in: " << error.what();
  }
  void expect_broken_samples(const Files& files, const Names& texts) {
    expect_broken(folder_.write("set.tar", tar_of(files)), texts);
  }
  TemporaryFolder folder_;
};

TEST_F(Tar, SamplesWithClassFiles) {
  const Dataset set = open_dataset(folder_.write("set.tar", tar_of(samples(0, 6))));
  EXPECT_EQ(set.classes, (Names{"0", "1", "2"}));
  EXPECT_EQ(set.train().labels, (Labels{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(paths_of(set.train())[5], "0005.jpg");
  EXPECT_EQ(set.train().path(5), folder_.path("set.tar/0005.jpg"));
  std::string bytes;
  set.train().store->read(set.train().files[4], bytes);
  EXPECT_EQ(bytes, picture(4));
}

TEST_F(Tar, LabelsAsNamesAndInJson) {
  const Files files = {{"n/a.cls", "dog\n"},
                       {"n/a.png", fixture("rgb.png")},
                       {"n/b.json", "{\"label\": \"cat\", \"w\": [1, {}]}"},
                       {"n/b.JPG", picture()},
                       {"n/c.x.txt", "caption"},
                       {"n/c.mask.png", "another picture"},
                       {"n/c.jpeg", picture()},
                       {"n/c.json", "{\"cls\": \"dog\"}"},
                       {"n/d.jpg", picture()},
                       {"n/d.cls", "cat"},
                       {"n/d.json", "{\"label\": \"bird\"}"}};
  const Dataset set = open_dataset(folder_.write("set", tar_of(files)));  // known by content
  EXPECT_EQ(set.classes, (Names{"cat", "dog"}));
  EXPECT_EQ(paths_of(set.train()), (Names{"n/a.png", "n/b.JPG", "n/c.jpeg", "n/d.jpg"}));
  const auto label = [&](size_t i) { return set.classes[size_t(set.train().labels[i])]; };
  EXPECT_EQ(label(0), "dog");
  EXPECT_EQ(label(1), "cat");
  EXPECT_EQ(label(2), "dog");
  EXPECT_EQ(label(3), "cat");  // .cls counts before .json
}

TEST_F(Tar, JsonNumbers) {
  const Files files = {
      {"a.json", "{\"label\": 1}"}, {"a.jpg", picture()}, {"b.jpg", picture()}, {"b.json", "{\"cls\": 0}"}};
  EXPECT_EQ(open_dataset(folder_.write("set.tar", tar_of(files))).train().labels, (Labels{1, 0}));
}

TEST_F(Tar, SeveralByPatternFolderAndSplits) {
  for (int i = 0; i < 12; ++i) folder_.write(fmt::format("s/part-{:03}.tar", i), tar_of(samples(i * 3, 3)));
  const Dataset all = open_dataset(folder_.path("s"));
  EXPECT_EQ(all.train().size(), 36);
  EXPECT_EQ(paths_of(all.train())[35], "part-011.tar/0035.jpg");
  EXPECT_EQ(all.train().path(35), folder_.path("s/part-011.tar/0035.jpg"));
  const Dataset some = open_dataset(folder_.path("s/part-{008..011}.tar"));
  EXPECT_EQ(some.train().size(), 12);
  EXPECT_EQ(paths_of(some.train())[0], "part-008.tar/0024.jpg");
  EXPECT_EQ(open_dataset(folder_.path("s/part-0{02,11}.tar")).train().size(), 6);

  // The same keys in different archives are different samples; names tell splits.
  for (const char* name : {"train-0.tar", "train-1.tar", "net_Validation_0.tar"})
    folder_.write(std::string("t/") + name, tar_of(samples(0, 3)));
  const Dataset named = open_dataset(folder_.path("t"));
  EXPECT_EQ(named.train().size(), 6);
  EXPECT_EQ(named.find("val")->size(), 3);
  for (const char* name : {"train/0.tar", "train/1.tar", "val/0.tar"})
    folder_.write(std::string("u/root/") + name, tar_of(samples(0, 3)));
  const Dataset folders = open_dataset(folder_.path("u"));
  EXPECT_EQ(folders.train().size(), 6);
  EXPECT_EQ(paths_of(*folders.find("val"))[0], "val/0.tar/0000.jpg");
}

TEST_F(Tar, ClassFoldersInSeveral) {
  folder_.write("t/train.tar", tar_of({{"a/1.jpg", picture()}, {"./b/", ""}, {"./b/2.jpg", picture(2)}}));
  folder_.write("t/val.tar", tar_of({{"b/1.jpg", picture()}, {"a/1.jpg", picture()}}));
  const Dataset set = open_dataset(folder_.path("t"));
  EXPECT_EQ(set.classes, (Names{"a", "b"}));
  EXPECT_EQ(paths_of(set.train()), (Names{"train/a/1.jpg", "train/b/2.jpg"}));
  EXPECT_EQ(set.train().path(1), folder_.path("t/train.tar/b/2.jpg"));
  std::string bytes;
  set.train().store->read(set.train().files[1], bytes);
  EXPECT_EQ(bytes, picture(2));
  EXPECT_EQ(set.find("val")->size(), 2);
}

TEST_F(Tar, ArchivesBesideClassFoldersAreNone) {
  write_files(folder_, {{"a/1.jpg", picture()}, {"b/1.jpg", picture()}, {"backup.tar", "no tar"}});
  EXPECT_EQ(open_dataset(folder_.path()).train().size(), 2);
  write_files(folder_, {{"p/1.jpg", picture()}, {"p/backup.tar", "no tar"}, {"p/train.bin", "other"}});
  EXPECT_EQ(open_pictures(folder_.path("p")).size(), 1);
}

TEST_F(Tar, ForPredictionLabelsArentAsked) {
  Files files = samples(0, 3);
  files.emplace_back("9.png", picture());
  files.emplace_back("notes.txt", "text");
  EXPECT_EQ(open_pictures(folder_.write("set.tar", tar_of(files))).size(), 4);
}

TEST_F(Tar, MoreArchivesThanStayOpen) {
  Names names;
  for (int i = 0; i < 300; ++i) folder_.write(fmt::format("s/{:03}.tar", i), tar_of(samples(i, 1)));
  const Dataset set = open_dataset(folder_.path("s"));
  std::string bytes;
  for (const int i : {0, 255, 256, 299}) {
    set.train().store->read(set.train().files[size_t(i)], bytes);
    EXPECT_EQ(bytes, picture(uint32_t(i)));
  }
  // Those that were not kept open must not become others under the labels of the first.
  for (const int i : {0, 299}) {
    const std::string path = folder_.path(fmt::format("s/{:03}.tar", i));
    std::filesystem::rename(path, path + ".old");
    folder_.write(fmt::format("s/{:03}.tar", i), tar_of(samples(i + 1000, 1)));
  }
  set.train().store->read(set.train().files[0], bytes);
  EXPECT_EQ(bytes, picture(0));
  const Error error = error_of([&] { set.train().store->read(set.train().files[299], bytes); });
  EXPECT_NE(std::string(error.what()).find("299.tar' was replaced"), std::string::npos) << error.what();
}

// What the tar program writes in each of its formats, with names beyond 100 and 255 bytes where it can.
TEST_F(Tar, FormatsOfTheTarProgram) {
  if (std::system("tar --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no tar program";
  const std::string wide(90, 'x'), deep = wide + "/" + wide, deeper = deep + "/" + wide + "/" + wide;
  for (const auto& [format, longest] : {std::pair<const char*, std::string>{"v7", "c"},
                                        {"ustar", deep},
                                        {"gnu", deeper},
                                        {"pax", deeper},
                                        {"oldgnu", deeper}}) {
    SCOPED_TRACE(format);
    TemporaryFolder set;
    write_files(set, {{"in/a/ü 1.jpg", picture(1)}, {"in/b/" + longest + "/2.jpg", picture(2)}});
    const std::string command =
        fmt::format("tar --format={} -C '{}' -cf '{}' in", format, set.path(), set.path("t"));
    ASSERT_EQ(std::system(command.c_str()), 0);
    const Dataset opened = open_dataset(set.path("t"));
    EXPECT_EQ(paths_of(opened.train()), (Names{"in/a/ü 1.jpg", "in/b/" + longest + "/2.jpg"}));
    std::string bytes;
    opened.train().store->read(opened.train().files[1], bytes);
    EXPECT_EQ(bytes, picture(2));
  }
}

TEST_F(Tar, BinarySizes) {
  std::string first = tar_entry("a/1.jpg", picture());
  const size_t size = picture().size();
  std::string field(12, '\0');
  field[0] = char(0x80), field[10] = char(size >> 8), field[11] = char(size);
  first.replace(124, 12, field);
  first.replace(148, 8, "        ");
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += uint8_t(first[i]);
  first.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  const Dataset set = open_dataset(folder_.write("set.tar", first + tar_of({{"b/1.jpg", picture()}})));
  EXPECT_EQ(set.train().size(), 2);
}

TEST_F(Tar, BrokenSamples) {
  const std::string p = picture();
  expect_broken_samples({{"a.jpg", p}, {"a.cls", "0"}, {"b.jpg", p}, {"c.jpg", p}, {"c.cls", "1"}},
                        {"1 picture has no label: 'b.jpg'", "beside the picture"});
  expect_broken_samples({{"a.jpg", p}, {"a.cls", "0"}, {"b.cls", "1"}, {"c.jpg", p}, {"c.cls", "1"}},
                        {"1 label has no picture: 'b'"});
  expect_broken_samples({{"a.jpg", p}, {"a.cls", ""}, {"c.jpg", p}, {"c.cls", "1"}},
                        {"label is empty", "'a.cls'"});
  expect_broken_samples({{"a.jpg", p}, {"a.png", p}, {"a.cls", "0"}, {"b.jpg", p}, {"b.cls", "1"}},
                        {"second of its sample: 'a.png'"});
  expect_broken_samples({{"a.jpg", p}, {"a.cls", "0"}, {"a.jpg", p}, {"b.jpg", p}, {"b.cls", "1"}},
                        {"second"});
  expect_broken_samples(
      {{"a.jpg", p}, {"a.cls", "0"}, {"b.jpg", p}, {"b.cls", "1"}, {"a.jpg", p}, {"a.cls", "1"}},
      {"twice in the archive: 'a.jpg'"});
  expect_broken_samples({{"a.jpg", p}, {"a.cls", "-1"}, {"b.jpg", p}, {"b.cls", "1"}}, {"out of range: -1"});
  expect_broken_samples({{"a.jpg", p}, {"a.cls", "0"}, {"b.jpg", p}, {"b.cls", "2"}}, {"no pictures: '1'"});
  expect_broken_samples({{"a.jpg", p}, {"a.json", "{\"label\": 0.5}"}, {"b.jpg", p}, {"b.cls", "0"}},
                        {"no label: 'a.jpg'"});
  expect_broken_samples({{"a.jpg", p}, {"a.json", "{\"label\": "}, {"b.jpg", p}, {"b.cls", "0"}},
                        {"no label"});
  for (const char* twice : {R"({"label": 0, "label": 1})", R"({"cls": 0, "w": {}, "cls": 0})"})
    expect_broken_samples({{"a.jpg", p}, {"a.json", twice}, {"b.jpg", p}, {"b.cls", "0"}},
                          {"label is given more than once", "'a.json'"});
  // What isn't the label's is not looked at.
  const Dataset set = open_dataset(
      folder_.write("others.tar", tar_of({{"a.jpg", p},
                                          {"a.json", R"({"w": 1, "w": {"cls": 3, "cls": 4}, "cls": 0})"},
                                          {"b.jpg", p},
                                          {"b.cls", "1"}})));
  EXPECT_EQ(set.train().labels, (std::vector<int32_t>{0, 1}));
}

TEST_F(Tar, BrokenArchives) {
  const std::string whole = tar_of(samples(0, 3)), one = tar_entry("a/1.jpg", picture());
  const std::string end(1024, '\0');
  const auto broken = [&](const std::string& bytes, const Names& texts) {
    expect_broken(folder_.write("set.tar", bytes), texts);
  };
  broken("", {"set.tar", "cut off"});
  broken("no tar at all", {"set.tar", "cut off"});
  broken(std::string(600, 'x'), {"set.tar", "is none"});
  broken(end, {"no pictures"});
  for (const size_t size : {size_t{513}, size_t{700}, size_t{1536}, whole.size() - 1024, whole.size() - 700})
    broken(whole.substr(0, size), {"set.tar", "cut off"});
  std::string damaged = whole;
  damaged[512 + (picture(0).size() + 511) / 512 * 512 + 3] ^= 4;
  broken(damaged, {"damaged", "no header where one should be"});
  broken(whole + whole, {"goes on behind its end"});
  broken(one + tar_entry("../b.jpg", picture()) + end, {"outside the archive", "../b.jpg"});
  broken(one + tar_entry("/b/b.jpg", picture()) + end, {"outside the archive"});
  broken(one + one + tar_entry("b/1.jpg", picture()) + end, {"twice", "a/1.jpg"});
  broken(one + tar_header("b/1.jpg", 0, '2') + end, {"is a link", "b/1.jpg", "dereference"});
  broken(one + tar_entry("b/1.jpg", picture(), 'S') + end, {"sparse", "b/1.jpg"});
  broken(one + tar_entry("x", "12 path=b/2.jpg\n", 'x') + tar_entry("b/1.jpg", picture()) + end,
         {"damaged extended header"});
  broken(one + tar_header("x", size_t{1} << 40, 'L') + end, {"cut off"});
  broken(one + tar_header("b/1.jpg", size_t{8} << 30) + end, {"cut off", "b/1.jpg"});
}

TEST_F(Tar, BrokenSets) {
  folder_.write("s/p-0.tar", tar_of(samples(0, 3)));
  expect_broken(folder_.path("s/p-{0..2}.tar"), {"2 archives are missing", "p-1.tar"}, StatusCode::not_found);
  expect_broken(folder_.path("s/p-{2..0}.tar"), {"range"}, StatusCode::invalid_argument);
  expect_broken(folder_.path("s/p-{0..99999999999}.tar"), {"range"}, StatusCode::invalid_argument);
  expect_broken(folder_.path("s/{0..999}{0..999}.tar"), {"more than 100000"}, StatusCode::invalid_argument);
  expect_broken(folder_.path("s/p-{0.tar"), {"isn't closed"}, StatusCode::invalid_argument);
  expect_broken(folder_.path("s/p-{}.tar"), {"without a range"}, StatusCode::invalid_argument);
  folder_.write("s/p-1.tar", "no tar");
  expect_broken(folder_.path("s"), {"p-1.tar", "cut off"});
  folder_.write("s/p-1.tar", tar_of(samples(3, 3)));
  folder_.write("s/val-1.tar", tar_of(samples(3, 3)));
  expect_broken(folder_.path("s"), {"2 names tell no split", "p-0.tar", "train, val or test"});
}

TEST_F(Tar, ShortenedWhileItIsUsed) {
  const std::string whole = tar_of(samples(0, 3)), path = folder_.write("set.tar", whole);
  const Dataset set = open_dataset(path);
  std::filesystem::resize_file(path, 1000);
  std::string bytes;
  const Error error = error_of([&] { set.train().store->read(set.train().files[2], bytes); });
  EXPECT_NE(std::string(error.what()).find("set.tar' was shortened"), std::string::npos) << error.what();
}

// Equally long pictures that change places would come with each other's labels.
TEST_F(Tar, WrittenWhileItIsUsed) {
  const std::string path = folder_.write("set.tar", tar_of(samples(0, 6)));
  const Dataset set = open_dataset(path);
  std::string bytes;
  set.train().store->read(set.train().files[0], bytes);
  const auto before = std::filesystem::last_write_time(path);
  std::ofstream(path, std::ios::in | std::ios::out | std::ios::binary).put('x');  // in place
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  const Error error = error_of([&] { set.train().store->read(set.train().files[0], bytes); });
  EXPECT_EQ(error.code(), StatusCode::invalid_data);
  EXPECT_NE(std::string(error.what()).find("set.tar' was written while"), std::string::npos) << error.what();
}

TEST(Braces, StandForNames) {
  EXPECT_EQ(expand_braces("a"), (Names{"a"}));
  EXPECT_EQ(expand_braces("a{08..10}b"), (Names{"a08b", "a09b", "a10b"}));
  EXPECT_EQ(expand_braces("{8..10}"), (Names{"8", "9", "10"}));
  EXPECT_EQ(expand_braces("{x,}{0..1}"), (Names{"x0", "x1", "0", "1"}));
}

TEST_F(Tar, MutatedNeverCrash) {
  const std::string wide(120, 'w');
  std::string bytes = tar_entry("x", "30 path=" + wide.substr(0, 20) + "\n\n", 'x') +
                      tar_entry("L", wide + ".jpg", 'L') + tar_entry("short", picture()) +
                      tar_entry(wide.substr(0, 90) + ".jpg", "") + tar_of(samples(0, 3));
  expect_survives(4000, 5, {100, 300}, [&](uint64_t i, RandomStream& random) {
    std::string changed = bytes;
    if (i % 2) {
      changed = mutate(bytes, random);
    } else {  // changed headers whose checksums are right
      const size_t block = random.below(uint32_t(bytes.size() / 512)) * 512;
      for (int k = 0; k < 3; ++k)
        changed[block + random.below(300)] = char(random.below(3) ? random.bits() : '7');
      changed.replace(block + 148, 8, "        ");
      unsigned sum = 0;
      for (size_t k = 0; k < 512; ++k) sum += uint8_t(changed[block + k]);
      changed.replace(block + 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    }
    const std::string path = folder_.write("m.tar", changed);
    if (i % 4 < 2)
      read_all(open_pictures(path));
    else
      read_all(open_dataset(path));
  });
}

}  // namespace
}  // namespace ren::data::test
