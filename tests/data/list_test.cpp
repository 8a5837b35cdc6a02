// SPDX-License-Identifier: Apache-2.0
// CSV lists: what is understood, and that each fault is told with its line.
#include <sys/stat.h>

#include "data/dataset.h"
#include "data/mutation.h"
#include "data/source/csv.h"
#include "data/source/stores.h"
#include "data/support.h"
#include "engine/base/rng.h"

namespace ren::data::test {
namespace {

using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

class List : public ::testing::Test {
 protected:
  List() {
    for (const char* name : {"a.jpg", "b.jpg", "c d.jpg", "in/e,f.jpg", "ü/猫.jpg", "say \"g\".jpg"})
      folder_.write(std::string("set/") + name, jpeg_of(8, 8, uint32_t(name[0])));
    folder_.write("outside.jpg", jpeg_of(8, 8, 7));
  }
  std::string list(const std::string& text, const std::string& name = "list.csv") {
    return folder_.write("set/" + name, text);
  }
  Dataset open(const std::string& text) { return open_dataset(list(text)); }
  void expect_broken(const std::string& text, const Names& wanted) {
    const std::string path = list(text);
    const Error error = error_of([&] { open_dataset(path); });
    EXPECT_EQ(error.code(), StatusCode::invalid_data) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    for (const std::string& part : wanted)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' in: " << error.what();
  }
  TemporaryFolder folder_;
};

Names paths_of(const Split& split) {
  Names paths;
  for (const int64_t file : split.files) paths.emplace_back(split.store->path(file));
  return paths;
}

TEST_F(List, NamesInTheListsOrder) {
  const Dataset set = open("b.jpg,zebra\na.jpg,ape\nc d.jpg,zebra\n");
  EXPECT_EQ(set.classes, (Names{"ape", "zebra"}));
  EXPECT_EQ(paths_of(set.train()), (Names{"b.jpg", "a.jpg", "c d.jpg"}));
  EXPECT_EQ(set.train().labels, (Labels{1, 0, 1}));
  EXPECT_EQ(set.train().name, "all");
  EXPECT_EQ(set.train().path(2), folder_.path("set/c d.jpg"));
}

TEST_F(List, NumbersAreTheLabels) {
  const Dataset set = open("a.jpg,2\nb.jpg,0\nc d.jpg,1\n");
  EXPECT_EQ(set.classes, (Names{"0", "1", "2"}));
  EXPECT_EQ(set.train().labels, (Labels{2, 0, 1}));
  // "01" isn't how a number is written: names then
  EXPECT_EQ(open("a.jpg,01\nb.jpg,02\n").classes, (Names{"01", "02"}));
  EXPECT_TRUE(set.warnings.empty());
  EXPECT_TRUE(open("a.jpg,x\nb.jpg,y\n").warnings.empty());
  const Dataset mixed = open("a.jpg,1\nb.jpg,x\n");
  ASSERT_EQ(mixed.warnings.size(), 1u);
  EXPECT_NE(mixed.warnings[0].find("'x' is none, '1' is one"), std::string::npos) << mixed.warnings[0];
  EXPECT_EQ(open("a.jpg,10\nb.jpg,x\nc d.jpg,9\n").classes, (Names{"10", "9", "x"}));
}

TEST_F(List, BomQuotesCrlfAndNoLastLineEnd) {
  const Dataset set = open(
      "\xEF\xBB\xBF"
      "a.jpg,\"x, or y\"\r\n\r\n\"in/e,f.jpg\",b\r\n\"say \"\"g\"\".jpg\",b\r\n\xC3\xBC/猫.jpg,\"a\nb\"");
  EXPECT_EQ(paths_of(set.train()), (Names{"a.jpg", "in/e,f.jpg", "say \"g\".jpg", "ü/猫.jpg"}));
  EXPECT_EQ(set.classes, (Names{"a\nb", "b", "x, or y"}));
}

TEST_F(List, HeaderNamesTheColumns) {
  EXPECT_EQ(paths_of(open("path,label\na.jpg,x\nb.jpg,y\n").train()), (Names{"a.jpg", "b.jpg"}));
  const Dataset set =
      open("id,Split,Label,width,Filename\n7,train,x,1,a.jpg\n8,train,y,1,b.jpg\n9,Valid,x,1,c d.jpg\n");
  EXPECT_EQ(paths_of(set.train()), (Names{"a.jpg", "b.jpg"}));
  EXPECT_EQ(set.train().name, "train");
  EXPECT_EQ(paths_of(*set.validation()), (Names{"c d.jpg"}));
  EXPECT_EQ(set.validation()->labels, (Labels{0}));
}

TEST_F(List, SplitsInAThirdColumn) {
  const Dataset set = open("a.jpg,x,train\nb.jpg,y,test\nc d.jpg,y,train\n./ü/猫.jpg,x,val\n");
  EXPECT_EQ(set.train().size(), 2);
  EXPECT_EQ(paths_of(*set.find("val")), (Names{"ü/猫.jpg"}));
  EXPECT_EQ(paths_of(*set.find("test")), (Names{"b.jpg"}));
  EXPECT_EQ(set.find("val")->classes, set.classes);
}

TEST_F(List, PathsBelowTheFolderMayBeAbsolute) {
  EXPECT_EQ(paths_of(open(folder_.path("set/a.jpg") + ",x\nb.jpg,y\n").train()), (Names{"a.jpg", "b.jpg"}));
}

TEST_F(List, KnownByContentToo) {
  const std::string path = list("a.jpg,x\nb.jpg,y\n", "pictures");
  EXPECT_EQ(open_dataset(path).train().size(), 2);
}

TEST_F(List, ForPredictionLabelsArentAsked) {
  EXPECT_EQ(paths_of(open_pictures(list("path\nb.jpg\na.jpg\n"))), (Names{"b.jpg", "a.jpg"}));
  const Split split = open_pictures(list("a.jpg,\nb.jpg,5\n"));
  EXPECT_EQ(split.labels, (Labels{-1, -1}));
}

TEST_F(List, ValidationWithFewerNumbersThanTraining) {
  DatasetOptions options;
  options.validation_uri = list("a.jpg,0\nb.jpg,1\n", "val.csv");
  const Dataset set = open_dataset(list("a.jpg,0\nb.jpg,1\nc d.jpg,2\n"), options);
  EXPECT_EQ(set.validation()->classes, set.classes);
  EXPECT_EQ(set.classes.size(), 3u);
}

TEST_F(List, LoadsAndIsIdentifiedByNamesAndLabels) {
  LoaderOptions o;
  o.batch = 2, o.height = o.width = 8, o.threads = 2;
  const auto facts = [&](const std::string& text) { return make_loader(open(text).train(), o)->identity(); };
  const auto loader = make_loader(open("a.jpg,x\nb.jpg,y\n").train(), o);
  loader->start_epoch(0, 0);
  BatchView view;
  EXPECT_TRUE(loader->next(view));
  EXPECT_EQ(facts("a.jpg,x\nb.jpg,y\n"), facts("path,label\r\na.jpg,x\r\nb.jpg,y\r\n"));
  EXPECT_NE(facts("a.jpg,x\nb.jpg,y\n"), facts("b.jpg,y\na.jpg,x\n"));
  EXPECT_NE(facts("a.jpg,x\nb.jpg,y\n"), facts("a.jpg,y\nb.jpg,x\n"));
}

TEST_F(List, Broken) {
  expect_broken("", {"names no pictures", "path,label"});
  expect_broken("path,label\n", {"names no pictures"});
  expect_broken("a.jpg,x\nb.jpg\n", {"1 line has another number of columns", "line 2 (1)"});
  expect_broken("a.jpg;x\nb.jpg;y\n", {"2 lines", "with commas"});
  expect_broken("a.jpg,x\nb.jpg,y,train\n", {"line 2 (3)"});
  expect_broken("a.jpg,x,train,1\nb.jpg,y,train,1\n", {"line 1 (4)"});
  expect_broken("a.jpg,x\n,y\n", {"no path: line 2"});
  expect_broken("a.jpg,x\nb.jpg,\n", {"no label: line 2 'b.jpg'"});
  expect_broken("a.jpg,x,train\nb.jpg,y,trian\n", {"unknown split: line 2 'trian'", "train, val or test"});
  expect_broken("a.jpg,x,train\nb.jpg,y,\n", {"unknown split: line 2 ''"});
  expect_broken("a.jpg,x\n\"b.jpg,y\nc d.jpg,y\n", {"quotes that don't match: line 2"});
  expect_broken("a.jpg,x\n\"b\".jpg,y\n", {"quotes that don't match: line 2"});
  expect_broken("a.jpg,x\nb.jpg,y\nx.jpg,y\nin,x\n",
                {"2 files are missing", "line 3 'x.jpg'", "line 4 'in'"});
  expect_broken("a.jpg,x\nb.jpg,y\n./a.jpg,x\n", {"twice", "line 1 'a.jpg' and 3"});
  expect_broken("a.jpg,x\n../outside.jpg,y\n", {"outside the list's folder", "line 2 '../outside.jpg'"});
  expect_broken("a.jpg,x\n/etc/passwd,y\n", {"outside the list's folder", "/etc/passwd"});
  expect_broken("a.jpg,0\nb.jpg,-1\n", {"out of range: -1"});
  expect_broken("a.jpg,0\nb.jpg,99999999999999999999\n", {"out of range"});
  expect_broken("a.jpg,1\nb.jpg,3\n", {"2 classes have no pictures: '0', '2'", "without a gap"});
  expect_broken("a.jpg,x\nb.jpg,x\n", {"one class only, 'x'"});
  expect_broken("a.jpg,caf\xE9\nb.jpg,x\n", {"not UTF-8"});
  expect_broken(std::string("a.jpg,x\na\0b,x\n", 14), {"no possible path: line 2"});
}

TEST_F(List, ManyFaultsOfOneKindAreOneLine) {
  std::string text = "a.jpg,x\nb.jpg,y\n";
  for (int i = 0; i < 1000; ++i) text += fmt::format("gone{}.jpg,x\n", i);
  expect_broken(text, {"(1 problem)", "1000 files are missing", "and 995 more"});
}

TEST(Csv, RowsAndTheirLines) {
  CsvReader reader("a,b\n\n\"x\ny\",\"\"\n\r\nq");
  Names row;
  ASSERT_EQ(reader.next(row), CsvReader::Row::good);
  EXPECT_EQ(row, (Names{"a", "b"}));
  ASSERT_EQ(reader.next(row), CsvReader::Row::good);
  EXPECT_EQ(row, (Names{"x\ny", ""}));
  EXPECT_EQ(reader.line(), 3);
  ASSERT_EQ(reader.next(row), CsvReader::Row::good);
  EXPECT_EQ(row, (Names{"q"}));
  EXPECT_EQ(reader.line(), 6);
  EXPECT_EQ(reader.next(row), CsvReader::Row::end);
}

TEST(Csv, Utf8) {
  for (const char* good : {"", "abc", "\xC3\xBC", "\xE7\x8C\xAB", "\xF0\x9F\x90\x88", "\xEF\xBB\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad :
       {"\xC3", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xE0\x80\x80", "\xF5\x80\x80\x80", "\x80"})
    EXPECT_FALSE(is_utf8(bad));
}

TEST_F(List, MutatedNeverCrash) {
  const std::string text =
      "path,label,split\na.jpg,x,train\n\"c d.jpg\",\"y\",train\r\n\"in/e,f.jpg\",x,val\nb.jpg,y,train\n";
  expect_survives(3000, 4, {30, 300}, [&](uint64_t i, RandomStream& random) {
    const std::string path = list(mutate(text, random));
    if (i % 2)
      open_dataset(path);
    else
      open_pictures(path);
  });
}

}  // namespace
}  // namespace ren::data::test
