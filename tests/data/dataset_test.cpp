// SPDX-License-Identifier: Apache-2.0
// Layouts that are understood, and broken data sets: each gives one clear error.
#include "data/dataset.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "data/support.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

const std::string& picture() {
  static const std::string bytes = jpeg_of(8, 8, 1);
  return bytes;
}

Files with(const std::string& prefix, std::initializer_list<const char*> names) {
  Files files;
  for (const char* name : names) files.emplace_back(prefix + name, picture());
  return files;
}

Files operator+(Files a, const Files& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> paths_of(const Split& split) {
  std::vector<std::string> paths;
  for (const int64_t file : split.files) paths.emplace_back(split.store->path(file));
  return paths;
}

using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

// The same files as a folder, as a zip and as a tar must give the same data set.
template <typename Check>
void for_folder_and_archives(const Files& files, Check&& check) {
  {
    SCOPED_TRACE("folder");
    TemporaryFolder folder;
    folder.make_folder("set");
    for (const auto& [name, content] : files) {
      if (name.back() == '/')
        folder.make_folder("set/" + name);
      else
        folder.write("set/" + name, content);
    }
    check(folder.path("set"));
  }
  TemporaryFolder folder;
  {
    SCOPED_TRACE("zip");
    write_zip(folder.path("set.zip"), files);
    check(folder.path("set.zip"));
  }
  if (std::any_of(files.begin(), files.end(), [](const auto& f) { return f.first.size() > 100; })) return;
  SCOPED_TRACE("tar");
  check(folder.write("set.tar", tar_of(files)));
}

TEST(Dataset, ClassFolders) {
  for_folder_and_archives(
      with("", {"b/2.jpg", "b/1.jpg", "a/x.jpg", "B/y.jpg", "a-b/z.jpg"}), [](const std::string& uri) {
        const Dataset set = open_dataset(uri);
        EXPECT_EQ(set.classes, (Names{"B", "a", "a-b", "b"}));  // by bytes
        ASSERT_EQ(set.splits.size(), 1u);
        EXPECT_EQ(set.train().name, "all");
        EXPECT_FALSE(set.has_validation());
        EXPECT_EQ(paths_of(set.train()), (Names{"B/y.jpg", "a/x.jpg", "a-b/z.jpg", "b/1.jpg", "b/2.jpg"}));
        EXPECT_EQ(set.train().labels, (Labels{0, 1, 2, 3, 3}));
        EXPECT_TRUE(set.warnings.empty());
        EXPECT_EQ(set.train().path(0), uri + "/B/y.jpg");
      });
}

TEST(Dataset, SplitsBelowASingleRoot) {
  for (const char* validation : {"val", "valid", "validation", "test"}) {
    const std::string v = validation;
    const Files files = with("root/", {"train/a/1.jpg", "train/b/2.jpg", "train/b/3.jpg"}) +
                        with("root/" + v, {"/a/4.jpg", "/b/5.jpg"}) + Files{{"root/README.md", "text"}};
    for_folder_and_archives(files, [&](const std::string& uri) {
      const Dataset set = open_dataset(uri);
      EXPECT_EQ(set.classes, (Names{"a", "b"}));
      EXPECT_EQ(set.train().size(), 3);
      ASSERT_TRUE(set.has_validation());
      EXPECT_EQ(set.validation()->name, v == "test" ? "test" : "val");
      EXPECT_EQ(paths_of(*set.validation()), (Names{"root/" + v + "/a/4.jpg", "root/" + v + "/b/5.jpg"}));
    });
  }
}

TEST(Dataset, TrainValAndTest) {
  for_folder_and_archives(with("", {"test/a/1.jpg", "test/b/1.jpg", "train/a/1.jpg", "train/b/1.jpg",
                                    "val/a/1.jpg", "val/b/1.jpg"}),
                          [](const std::string& uri) {
                            const Dataset set = open_dataset(uri);
                            ASSERT_EQ(set.splits.size(), 3u);
                            EXPECT_EQ(set.validation()->name, "val");
                            EXPECT_NE(set.find("test"), nullptr);
                          });
}

TEST(Dataset, OnlyAValidationFolder) {
  for_folder_and_archives(with("", {"val/a/1.jpg", "val/b/1.jpg"}), [](const std::string& uri) {
    const Dataset set = open_dataset(uri);
    EXPECT_EQ(set.validation()->size(), 2);
    EXPECT_EQ(error_of([&] { set.train(); }).code(), StatusCode::not_found);
  });
}

TEST(Dataset, ClassesNamedLikeSplitsWithoutTrain) {
  for_folder_and_archives(with("", {"test/1.jpg", "other/2.jpg"}), [](const std::string& uri) {
    EXPECT_EQ(open_dataset(uri).classes, (Names{"other", "test"}));
  });
}

TEST(Dataset, WhatDesktopsLeaveBehindIsIgnored) {
  const Files files =
      with("", {"a/1.jpg", "b/1.jpg", ".ipynb_checkpoints/1.jpg", "a/._1.jpg", "__MACOSX/a/1.jpg",
                "a/.hidden/1.jpg", ".DS_Store", "a/Thumbs.db", "a/desktop.ini"}) +
      Files{{"README.txt", "text"}};
  for_folder_and_archives(files, [](const std::string& uri) {
    const Dataset set = open_dataset(uri);
    EXPECT_EQ(set.classes, (Names{"a", "b"}));
    EXPECT_EQ(set.train().size(), 2);
  });
}

TEST(Dataset, PicturesAreKnownByContent) {
  const Files files =
      with("", {"a/no_ending", "a/odd.dat", "b/capital.JPEG"}) +
      Files{{"a/labels.csv", "1,2"}, {"b/notes", "text"}, {"b/really_png.jpg", fixture("rgb.png")}};
  for_folder_and_archives(files, [](const std::string& uri) {
    const Dataset set = open_dataset(uri);
    EXPECT_EQ(paths_of(set.train()),
              (Names{"a/no_ending", "a/odd.dat", "b/capital.JPEG", "b/really_png.jpg"}));
    ASSERT_EQ(set.warnings.size(), 2u);
    EXPECT_NE(set.warnings[0].find("1 file ignored"), std::string::npos);
  });
}

TEST(Dataset, UnicodeSpacesAndNestedFolders) {
  for_folder_and_archives(
      with("", {"klasse ä/bild 1.jpg", "猫/一 二.jpg", "猫/deep/er/3.jpg", "klasse ä/x'\"%.jpg"}),
      [](const std::string& uri) {
        const Dataset set = open_dataset(uri);
        EXPECT_EQ(set.classes, (Names{"klasse ä", "猫"}));
        EXPECT_EQ(set.train().size(), 4);
        LoaderOptions o;
        o.batch = 4;
        o.height = o.width = 8;
        o.threads = 1;
        const auto loader = make_loader(set.train(), o);
        loader->start_epoch(0, 0);
        BatchView view;
        EXPECT_TRUE(loader->next(view));
      });
}

TEST(Dataset, ValidationFromASecondUri) {
  TemporaryFolder folder;
  write_files(folder, with("", {"one/a/1.jpg", "one/b/1.jpg", "two/root/val/a/2.jpg", "two/root/val/b/2.jpg",
                                "two/root/train/a/3.jpg", "two/root/train/b/3.jpg", "three/x/1.jpg",
                                "three/a/1.jpg"}));
  write_zip(folder.path("val.zip"), with("", {"a/9.jpg", "b/9.jpg"}));
  DatasetOptions options;
  options.validation_uri = folder.path("two");
  Dataset set = open_dataset(folder.path("one"), options);
  EXPECT_EQ(paths_of(*set.validation()), (Names{"root/val/a/2.jpg", "root/val/b/2.jpg"}));
  EXPECT_EQ(set.train().name, "all");
  options.validation_uri = folder.path("val.zip");
  EXPECT_EQ(open_dataset(folder.path("two"), options).validation()->store->uri(), folder.path("val.zip"));
  options.validation_uri = folder.path("three");
  const Error error = error_of([&] { open_dataset(folder.path("one"), options); });
  EXPECT_NE(std::string(error.what()).find("lacks 'b'; has also 'x'"), std::string::npos) << error.what();
}

TEST(Dataset, LinksAreFollowedAndFifosPassedOver) {
  TemporaryFolder folder;
  write_files(folder, with("", {"set/a/1.jpg", "set/b/1.jpg", "other/2.jpg"}));
  std::filesystem::create_symlink(folder.path("other/2.jpg"), folder.path("set/a/link.jpg"));
  std::filesystem::create_directory_symlink(folder.path("other"), folder.path("set/b/more"));
  ASSERT_EQ(mkfifo(folder.path("set/a/pipe.jpg").c_str(), 0600), 0);
  folder.make_folder("set/a/folder.jpg");
  const Dataset set = open_dataset(folder.path("set/"));
  EXPECT_EQ(paths_of(set.train()), (Names{"a/1.jpg", "a/link.jpg", "b/1.jpg", "b/more/2.jpg"}));
}

TEST(OpenPictures, FileFolderAndZip) {
  TemporaryFolder folder;
  write_files(folder, with("", {"in/b.jpg", "in/a/c.jpg", "in/.d.jpg"}) + Files{{"in/e.txt", "text"}});
  write_zip(folder.path("in.zip"), with("", {"b.jpg", "a/c.jpg"}));
  for (const char* uri : {"in", "in.zip"}) {
    const Split split = open_pictures(folder.path(uri));
    EXPECT_EQ(paths_of(split), (Names{"a/c.jpg", "b.jpg"}));
    EXPECT_EQ(split.labels, (Labels{-1, -1}));
    EXPECT_TRUE(split.classes.empty());
  }
  EXPECT_EQ(open_pictures(folder.path("in/b.jpg")).path(0), folder.path("in/b.jpg"));
  EXPECT_EQ(error_of([&] { open_pictures(folder.path("in/e.txt")); }).code(), StatusCode::invalid_data);
}

// --- broken ones --------------------------------------------------------------------

// Opening must fail with this code, and the message must hold every one of the texts.
void expect_broken(const std::string& uri, StatusCode code, const Names& texts,
                   const DatasetOptions& options = {}) {
  const Error error = error_of([&] { open_dataset(uri, options); });
  EXPECT_EQ(error.code(), code) << error.what();
  for (const std::string& text : texts)
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << "'" << text << "' in: " << error.what();
}

TEST(BrokenDataset, NotThere) {
  expect_broken("/no/such/place", StatusCode::not_found, {"/no/such/place", "No such file"});
  expect_broken("", StatusCode::invalid_argument, {"empty"});
}

TEST(BrokenDataset, NeitherFolderNorZip) {
  TemporaryFolder folder;
  expect_broken(folder.write("set.txt", "text"), StatusCode::invalid_data,
                {"set.txt", "neither a folder nor a zip"});
  expect_broken(folder.write("one.jpg", picture()), StatusCode::invalid_data, {"neither a folder nor a zip"});
  expect_broken(folder.write("empty", ""), StatusCode::invalid_data, {"neither a folder nor a zip"});
  expect_broken("/dev/null", StatusCode::io, {"/dev/null", "not a regular file"});
}

TEST(BrokenDataset, NoPictures) {
  for_folder_and_archives({{"notes.txt", "text"}}, [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data, {"has no pictures", "class"});
  });
  TemporaryFolder folder;
  expect_broken(folder.path(), StatusCode::invalid_data, {"has no pictures"});
  write_zip(folder.path("hidden.zip"), with("", {".a/1.jpg"}));
  expect_broken(folder.path("hidden.zip"), StatusCode::invalid_data, {"has no pictures"});
}

TEST(BrokenDataset, NoPicturesInTheClasses) {
  for_folder_and_archives({{"a/notes.txt", "text"}, {"b/notes.txt", "text"}}, [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data, {"no pictures in them"});
  });
}

TEST(BrokenDataset, NoClassFolders) {
  for_folder_and_archives(with("", {"1.jpg", "2.jpg"}), [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data,
                  {"has pictures but no class folders", "make one folder a class"});
  });
  for_folder_and_archives(with("", {"train/1.jpg", "val/2.jpg"}), [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data, {"(2 problems)", "train", "val", "no class folders"});
  });
}

TEST(BrokenDataset, OneClass) {
  for_folder_and_archives(with("", {"a/1.jpg", "a/2.jpg"}), [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data, {"one class only, 'a'"});
    DatasetOptions options;
    options.allow_one_class = true;
    EXPECT_EQ(open_dataset(uri, options).classes, (Names{"a"}));
  });
}

TEST(BrokenDataset, EmptyClass) {
  for_folder_and_archives(with("", {"a/1.jpg", "c/2.jpg"}) + Files{{"b/", ""}}, [](const std::string& uri) {
    expect_broken(uri, StatusCode::invalid_data,
                  {"1 class folder has no pictures: 'b'", "allow empty classes"});
    DatasetOptions options;
    options.allow_empty_classes = true;
    const Dataset set = open_dataset(uri, options);
    EXPECT_EQ(set.classes, (Names{"a", "b", "c"}));
    EXPECT_EQ(set.train().labels, (Labels{0, 2}));
  });
}

TEST(BrokenDataset, TrainAndValDiffer) {
  for_folder_and_archives(with("", {"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/c/1.jpg"}),
                          [](const std::string& uri) {
                            expect_broken(uri, StatusCode::invalid_data,
                                          {"'val'", "not those of 'train'", "lacks 'b'", "has also 'c'"});
                          });
}

TEST(BrokenDataset, SeveralProblemsAtOnce) {
  for_folder_and_archives(
      with("", {"train/a/1.jpg", "val/b/1.jpg", "valid/b/1.jpg"}), [](const std::string& uri) {
        expect_broken(uri, StatusCode::invalid_data,
                      {"one class only, 'a'", "second validation folder", "not those of"});
      });
}

TEST(BrokenDataset, BadSecondUri) {
  TemporaryFolder folder;
  write_files(folder, with("", {"a/1.jpg", "b/1.jpg"}));
  DatasetOptions options;
  options.validation_uri = folder.path("nowhere");
  expect_broken(folder.path(), StatusCode::not_found, {"nowhere"}, options);
}

TEST(BrokenDataset, FolderThatLinksToItself) {
  TemporaryFolder folder;
  write_files(folder, with("", {"a/1.jpg", "b/1.jpg"}));
  std::filesystem::create_directory_symlink(folder.path(), folder.path("a/loop"));
  expect_broken(folder.path(), StatusCode::invalid_data, {"a/loop", "link back"});
}

std::string zip_bytes(const Files& files, bool compress = false) {
  TemporaryFolder folder;
  write_zip(folder.path("set.zip"), files, compress);
  return read_file(folder.path("set.zip"));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
    text.replace(at, from.size(), to);
}

TEST(BrokenZip, NotAZip) {
  TemporaryFolder folder;
  expect_broken(folder.write("set.zip", "text, not an archive"), StatusCode::invalid_data,
                {"set.zip", "cannot open the archive"});
  expect_broken(folder.write("nothing.zip", ""), StatusCode::invalid_data, {"nothing.zip"});
}

// What only says by its name that it is a picture is not inflated further than its first bytes.
TEST(BrokenZip, EntriesThatAreNoPicturesStayPacked) {
  TemporaryFolder folder;
  const std::string jpeg = picture();
  write_zip(
      folder.path("set.zip"),
      {{"a/1.jpg", std::string(8 << 20, '\0')}, {"b/1.jpg", jpeg}, {"c/1.jpg", ""}, {"d/1.jpg", "text"}},
      true);
  const auto store = open_file_store(folder.path("set.zip"));
  std::string bytes;
  store->read(0, bytes);
  EXPECT_LE(bytes.size(), 16u);
  store->read(1, bytes);
  EXPECT_EQ(bytes, jpeg);
  store->read(2, bytes);
  EXPECT_EQ(bytes, "");
  store->read(3, bytes);
  EXPECT_EQ(bytes, "text");
}

// 300 MiB, in a local header and in the directory.
TEST(BrokenZip, EntriesLargerThanAnyPictureAreRefused) {
  TemporaryFolder folder;
  std::string jpeg = picture();
  jpeg.resize(54321, 'x');
  const auto number = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), 4); };
  std::string bytes = zip_bytes({{"a/1.jpg", picture()}, {"b/1.jpg", jpeg}}, true);
  replace_all(bytes, number(54321), number(300u << 20));
  expect_broken(folder.write("set.zip", bytes), StatusCode::invalid_data,
                {"'b/1.jpg'", "314572800 bytes: too large for a picture (at most 268435456)"});
  // within the limit, but not what the archive says: noticed where it ends, without the memory for it
  bytes = zip_bytes({{"a/1.jpg", picture()}, {"b/1.jpg", jpeg}}, true);
  replace_all(bytes, number(54321), number(200u << 20));
  const auto store = open_file_store(folder.write("lies.zip", bytes));
  std::string content;
  EXPECT_EQ(error_of([&] { store->read(1, content); }).code(), StatusCode::invalid_data);
  EXPECT_LT(content.capacity(), size_t{4} << 20);
}

TEST(BrokenZip, Truncated) {
  TemporaryFolder folder;
  const std::string whole = zip_bytes(with("", {"a/1.jpg", "b/1.jpg"}));
  for (const size_t size : {size_t{5}, size_t{40}, whole.size() / 2, whole.size() - 5})
    expect_broken(folder.write("set.zip", whole.substr(0, size)), StatusCode::invalid_data,
                  {"set.zip", "not fully copied"});
}

TEST(BrokenZip, NamesOutsideTheArchive) {
  TemporaryFolder folder;
  for (const char* name : {"../e.jpg", "/etc/p.jpg", "a/../../x.jpg", "a/.."}) {
    // libzip writes such names only when asked to rename bytes afterwards.
    const std::string stand_in(std::string_view(name).size(), 'q');
    std::string bytes = zip_bytes(with("", {"a/1.jpg", "b/1.jpg"}) + Files{{stand_in, picture()}});
    replace_all(bytes, stand_in, name);
    expect_broken(folder.write("set.zip", bytes), StatusCode::invalid_data, {name, "outside the archive"});
  }
}

TEST(BrokenZip, TheSameNameTwice) {
  TemporaryFolder folder;
  std::string bytes = zip_bytes(with("", {"a/1.jpg", "a/2.jpg", "b/1.jpg"}));
  replace_all(bytes, "a/2.jpg", "a/1.jpg");
  expect_broken(folder.write("set.zip", bytes), StatusCode::invalid_data, {"a/1.jpg", "twice"});
}

TEST(BrokenZip, EncryptedAndUnknownCompression) {
  TemporaryFolder folder;
  const std::string whole = zip_bytes(with("", {"a/1.jpg", "b/1.jpg"}));
  std::string encrypted = whole, method = whole;
  const size_t directory = whole.find("PK\x01\x02");
  encrypted[directory + 8] = char(encrypted[directory + 8] | 1);
  method[directory + 10] = 97;
  expect_broken(folder.write("e.zip", encrypted), StatusCode::invalid_data, {"a/1.jpg", "encrypted"});
  expect_broken(folder.write("m.zip", method), StatusCode::invalid_data,
                {"a/1.jpg", "compression method 97"});
}

// Reads everything; the error must name the file.
Error read_error(const Split& split) {
  LoaderOptions o;
  o.batch = 2;
  o.height = o.width = 8;
  o.threads = 2;
  const auto loader = make_loader(split, o);
  return error_of([&] {
    BatchView view;
    loader->start_epoch(0, 0);
    while (loader->next(view)) {
    }
  });
}

TEST(BrokenZip, DamagedEntry) {
  for (const bool compress : {false, true}) {
    TemporaryFolder folder;
    std::string bytes = zip_bytes(with("", {"a/1.jpg", "b/1.jpg"}), compress);
    bytes[60] = char(bytes[60] ^ 0x10);
    const Dataset set = open_dataset(folder.write("set.zip", bytes));
    const Error error = read_error(set.train());
    EXPECT_EQ(error.code(), StatusCode::invalid_data);
    EXPECT_NE(std::string(error.what()).find("set.zip/a/1.jpg"), std::string::npos) << error.what();
  }
}

TEST(BrokenFile, EachIsNamedWithItsReason) {
  std::string truncated = picture().substr(0, picture().size() - 20), huge = picture();
  const size_t frame = huge.find("\xFF\xC0");
  for (int i = 5; i < 9; ++i) huge[frame + size_t(i)] = char(0xF0);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"text, named as a picture", "neither JPEG nor PNG"},
      {"", "is empty"},
      {truncated, "truncated"},
      {huge, "61680 x 61680"},
      {"GIF89a and so on", "is GIF"},
      {std::string("RIFF\0\0\0\0WEBPVP8 ", 16), "is WebP"},
      {"\xFF\xD8\xFF", "truncated"},
      {"\x89PNG\r\n\x1A\n", "truncated"},
      {fixture("rgb.png").substr(0, 200), "truncated"},
      {picture().substr(0, 2) + "\xFF\xC4\x01\x44" + std::string(400, '\x77'), "damaged"}};
  for (const auto& [content, reason] : cases) {
    for_folder_and_archives(
        with("", {"a/1.jpg"}) + Files{{"b/bad.jpg", content}}, [&](const std::string& uri) {
          const Error error = read_error(open_dataset(uri).train());
          EXPECT_TRUE(error.code() == StatusCode::invalid_data || error.code() == StatusCode::unsupported);
          EXPECT_NE(std::string(error.what()).find(uri + "/b/bad.jpg"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
        });
  }
}

TEST(BrokenFile, LinkToNothing) {
  TemporaryFolder folder;
  write_files(folder, with("", {"a/1.jpg", "b/1.jpg"}));
  std::filesystem::create_symlink(folder.path("gone"), folder.path("b/2.jpg"));
  const Error error = read_error(open_dataset(folder.path()).train());
  EXPECT_EQ(error.code(), StatusCode::not_found);
  EXPECT_NE(std::string(error.what()).find("b/2.jpg"), std::string::npos);
}

TEST(BrokenFile, BecameAPipeSinceItWasListed) {
  TemporaryFolder folder;
  write_files(folder, with("", {"a/1.jpg", "b/1.jpg"}));
  const Dataset set = open_dataset(folder.path());
  unlink(folder.path("b/1.jpg").c_str());
  ASSERT_EQ(mkfifo(folder.path("b/1.jpg").c_str(), 0600), 0);
  const Error error = read_error(set.train());
  EXPECT_EQ(error.code(), StatusCode::io);
  EXPECT_NE(std::string(error.what()).find("b/1.jpg"), std::string::npos);
}

}  // namespace
}  // namespace ren::data::test
