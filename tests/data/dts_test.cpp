// SPDX-License-Identifier: Apache-2.0
// The packed form, read: files that are put together here field by field.
#include <filesystem>

#include "data/dataset.h"
#include "data/mutation.h"
#include "data/source/dts_format.h"
#include "data/support.h"
#include "engine/base/checksum.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

using namespace dts;

// A packed data set in pieces, so that a test can spoil one of them.
struct Packed {
  Header header;
  std::string records;  // with their headers, as they lie in the file
  Index index;

  void add(const std::string& path, const std::string& content, int32_t label) {
    const uint64_t begin = kHeaderBytes + records.size();
    const uint32_t crc = ren::crc32(0, content.data(), content.size());
    RecordHeader record;
    record.sample = index.entries.size();
    record.bytes = uint32_t(content.size()), record.crc = crc;
    records += encode(record) + content;
    records.resize(size_t(aligned(records.size())));
    index.entries.push_back(
        {begin + kRecordHeaderBytes, record.bytes, crc, 0, 0, label, uint32_t(path.size())});
    index.paths += path;
  }

  // The file's bytes with offsets and checksums that are right for what is in them.
  std::string bytes() const { return bytes_with(encode(index)); }
  std::string bytes_with(const std::string& coded) const {
    Header h = header;
    h.complete = true;
    h.records = index.entries.size();
    h.index_offset = kHeaderBytes + records.size();
    h.index_bytes = coded.size();
    h.index_crc = ren::crc32(0, coded.data(), coded.size());
    h.file_bytes = h.index_offset + h.index_bytes;
    return encode(h) + records + coded;
  }
};

Packed three_pictures() {
  Packed p;
  p.add("train/cat/1.jpg", jpeg_of(9, 7, 1), 0);
  p.add("train/dog/2.jpg", jpeg_of(5, 6, 2), 1);
  p.add("val/dog/3 \xC3\xA4.jpg", jpeg_of(4, 4, 3), 1);
  p.index.classes = {"cat", "dog"};
  p.index.splits = {{"train", 2}, {"val", 1}};
  return p;
}

class Dts : public ::testing::Test {
 protected:
  Dataset open(const std::string& bytes) { return open_dataset(folder_.write("a.dts", bytes)); }
  void expect_broken(const std::string& bytes, const std::vector<std::string>& texts,
                     StatusCode code = StatusCode::invalid_data) {
    const Error error = error_of([&] { open(bytes); });
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("a.dts"), std::string::npos) << error.what();
  }
  TemporaryFolder folder_;
};

TEST_F(Dts, IsADataSet) {
  const Packed packed = three_pictures();
  const Dataset set = open(packed.bytes());
  EXPECT_EQ(set.classes, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(set.splits.size(), 2u);
  EXPECT_EQ(set.train().size(), 2);
  EXPECT_EQ(set.train().labels, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(set.validation()->labels, (std::vector<int32_t>{1}));
  EXPECT_EQ(set.validation()->path(0), folder_.path("a.dts") + "/val/dog/3 \xC3\xA4.jpg");
  std::string bytes;
  set.train().store->read(1, bytes);
  EXPECT_EQ(bytes, jpeg_of(5, 6, 2));
  EXPECT_EQ(set.train().store->read_head(1, 5), bytes.substr(0, 5));
  EXPECT_EQ(set.train().store->facts(1).crc, ren::crc32(0, bytes.data(), bytes.size()));
  EXPECT_EQ(open_pictures(folder_.path("a.dts")).size(), 3);
}

TEST_F(Dts, NameDoesNotMatter) {
  EXPECT_EQ(open_dataset(folder_.write("set.bin", three_pictures().bytes())).train().size(), 2);
}

TEST_F(Dts, BarePixels) {
  Packed p;
  p.header.form = {2, 1, 3, true};
  p.add("a/0", "\1\2\3\4\5\6", 0);
  p.add("a/1", "abcdef", 1);
  p.index.classes = {"0", "1"};
  p.index.splits = {{"all", 2}};
  const Dataset set = open(p.bytes());
  EXPECT_TRUE(set.train().store->pixel_form().planar);
  std::string bytes;
  set.train().store->read(1, bytes);
  EXPECT_EQ(bytes, "abcdef");
  p.header.form.width = 3;
  expect_broken(p.bytes(), {"picture 0 lies at an impossible place"});
}

TEST_F(Dts, EveryByteOfTheHeaderIsGuarded) {
  const std::string whole = three_pictures().bytes();
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    std::string changed = whole;
    changed[i] = char(changed[i] ^ 0x10);
    const bool magic = i < 8, version = i >= 8 && i < 12;
    expect_broken(changed,
                  {magic     ? "doesn't begin as a .dts file does"
                   : version ? "a .dts file of version"
                             : "its header's checksum is wrong"},
                  version ? StatusCode::unsupported : StatusCode::invalid_data);
  }
}

TEST_F(Dts, EveryByteOfTheIndexIsGuarded) {
  const std::string whole = three_pictures().bytes();
  for (size_t i = kHeaderBytes + three_pictures().records.size(); i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = char(changed[i] ^ 1);
    expect_broken(changed, {"its index's checksum is wrong"});
  }
}

TEST_F(Dts, CutOffAndGrown) {
  const std::string whole = three_pictures().bytes();
  for (const size_t bytes : {size_t{8}, size_t{127}, size_t{128}, size_t{500}, whole.size() - 1})
    expect_broken(whole.substr(0, bytes), {"cut off", "copy it again"});
  expect_broken(whole + "x", {"damaged", "its header says"});
  expect_broken("", {"doesn't begin as"});
  Header part;
  expect_broken(encode(part), {"isn't packed to its end", "renaissance pack"});
}

// Right checksums and wrong contents: what a faulty writer, or one that means harm, could make.
TEST_F(Dts, ImpossibleFields) {
  const auto broken = [&](const std::function<void(Packed&)>& spoil, const std::string& text) {
    Packed packed = three_pictures();
    spoil(packed);
    expect_broken(packed.bytes(), {text});
  };
  broken([](Packed& p) { p.index.entries[1].offset += 1; }, "picture 1 lies at an impossible place");
  broken([](Packed& p) { p.index.entries[1].offset = 0; }, "picture 1 lies at an impossible place");
  broken([](Packed& p) { p.index.entries[1].offset = UINT64_MAX - 63; }, "picture 1 lies at");
  broken([](Packed& p) { p.index.entries[2].offset = p.index.entries[1].offset; }, "picture 2 lies at");
  broken([](Packed& p) { p.index.entries[2].bytes = UINT32_MAX; }, "picture 2 lies at an impossible place");
  broken([](Packed& p) { p.index.entries[0].label = 2; }, "picture 0 has the label 2");
  broken([](Packed& p) { p.index.entries[0].label = -1; }, "picture 0 has the label -1");
  broken([](Packed& p) { p.index.entries[0].path_bytes += 1; }, "its paths have another length");
  broken([](Packed& p) { p.index.classes[1] = "cat"; }, "class 1 has the name of another");
  broken([](Packed& p) { p.index.splits[1].name = "train"; }, "split 1 has no good name");
  broken([](Packed& p) { p.index.splits[1].name = "more"; }, "split 1 has no good name");
  broken([](Packed& p) { p.index.splits[1].records = 2; }, "the split 'val' has 2 pictures");
  broken([](Packed& p) { p.index.splits[1].records = 0; }, "the split 'val' has 0 pictures");
  broken([](Packed& p) { p.index.splits.pop_back(); }, "its splits don't have all pictures");
  broken([](Packed& p) { p.header.form = {1, 0, 3, false}; }, "its header has impossible values");
  broken([](Packed& p) { p.header.form = {1, 1, 2, false}; }, "its header has impossible values");
  broken([](Packed& p) { p.index = {}; }, "it has no pictures");
  broken(
      [](Packed& p) {
        p.index.classes.clear();
        for (Entry& entry : p.index.entries) entry.label = -1;
      },
      "packed without classes");
}

TEST_F(Dts, IndexThatEndsEarly) {
  const Packed packed = three_pictures();
  const std::string index = encode(packed.index);
  for (size_t bytes = 0; bytes < index.size(); ++bytes)
    EXPECT_EQ(error_of([&] { open(packed.bytes_with(index.substr(0, bytes))); }).code(),
              StatusCode::invalid_data)
        << bytes;
}

// A picture whose bytes changed is a bad file like others, and the others are not concerned.
TEST_F(Dts, DamagedPictureFollowsThePolicy) {
  const Packed packed = three_pictures();
  std::string changed = packed.bytes();
  changed[size_t(packed.index.entries[1].offset) + 40] ^= 1;
  const Dataset set = open(changed);
  LoaderOptions o;
  o.batch = 2, o.height = o.width = 4, o.threads = 1;
  BatchView view;
  const auto load = [&](BadFiles policy) {
    o.bad_files = policy;
    auto loader = make_loader(set.train(), o);
    loader->start_epoch(0, 0);
    loader->next(view);
    return std::make_pair(std::vector<int32_t>(view.labels, view.labels + 2), loader->report());
  };
  const Error error = error_of([&] { load(BadFiles::fail); });
  EXPECT_EQ(error.code(), StatusCode::invalid_data);
  EXPECT_NE(std::string(error.what()).find("a.dts/train/dog/2.jpg': its checksum is wrong"),
            std::string::npos)
      << error.what();
  EXPECT_EQ(load(BadFiles::skip).first, (std::vector<int32_t>{0, BatchSource::kIgnoredLabel}));
  EXPECT_EQ(load(BadFiles::replace).second.bad_files, 1);
}

TEST_F(Dts, ShortenedWhileItIsUsed) {
  const Dataset set = open(three_pictures().bytes());
  std::filesystem::resize_file(folder_.path("a.dts"), 200);
  std::string bytes;
  const Error error = error_of([&] { set.train().store->read(1, bytes); });
  EXPECT_NE(std::string(error.what()).find("a.dts' was shortened"), std::string::npos) << error.what();
}

TEST_F(Dts, MutatedNeverCrash) {
  const Packed packed = three_pictures();
  const std::string whole = packed.bytes(), index = encode(packed.index);
  expect_survives(6000, 9, {100, 1000}, [&](uint64_t i, RandomStream& random) {
    std::string changed;
    if (i % 4 == 0)
      changed = mutate(whole, random);
    else if (i % 4 == 1)  // an index whose checksum is right
      changed = packed.bytes_with(mutate(index, random));
    else if (i % 4 == 2) {  // a header whose checksum is right
      changed = whole;
      for (uint32_t k = 0; k < 1 + i % 3; ++k) changed[12 + random.below(104)] = char(random.bits());
      const uint32_t crc = ren::crc32(0, changed.data(), kHeaderBytes - 4);
      for (size_t k = 0; k < 4; ++k) changed[kHeaderBytes - 4 + k] = char(crc >> (8 * k));
    } else {  // single fields
      changed = index;
      changed[random.below(uint32_t(3 * kEntryBytes))] ^= char(1 << random.below(8));
      changed = packed.bytes_with(changed);
    }
    const std::string path = folder_.write("m.dts", changed);
    if (i % 3 == 0)
      read_all(open_pictures(path));
    else
      read_all(open_dataset(path));
  });
}

// The index of a large set, with more paths than one piece of memory holds.
TEST_F(Dts, ManyPictures) {
  constexpr int kPictures = 100'000;
  Packed p;
  for (int i = 0; i < kPictures; ++i) p.add(fmt::format("train/n{:08}/{}.JPEG", i % 1000, i), "x", i % 1000);
  for (int i = 0; i < 1000; ++i) p.index.classes.push_back(fmt::format("n{:08}", i));
  p.index.splits = {{"train", kPictures}};
  const Dataset set = open(p.bytes());
  EXPECT_EQ(set.train().size(), kPictures);
  EXPECT_EQ(set.train().store->path(99'999), "train/n00000999/99999.JPEG");
  EXPECT_EQ(set.train().labels[54'321], 321);
  std::string bytes;
  set.train().store->read(99'999, bytes);
  EXPECT_EQ(bytes, "x");
}

}  // namespace
}  // namespace ren::data::test
