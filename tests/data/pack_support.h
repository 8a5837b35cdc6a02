// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/loader/identity.h"
#include "data/pack/pack.h"
#include "data/support.h"

namespace ren::data::test {

namespace fs = std::filesystem;

inline Files class_folders(int each = 4) {
  Files files;
  for (const char* split : {"train", "val"})
    for (const char* name : {"bird", "cat", "ñu"})
      for (int i = 0; i < each; ++i)
        files.emplace_back(fmt::format("{}/{}/{} {}.jpg", split, name, name, i),
                           jpeg_of(12 + 3 * i, 20 - i, uint32_t(i + name[0] + split[0])));
  return files;
}

class Pack : public ::testing::Test {
 protected:
  static PackReport pack(const std::string& source, const std::string& target,
                         const PackOptions& options = {}, const JobWatch& watch = {}) {
    return pack_dataset(open_dataset(source), target, options, watch);
  }
  std::string folder_source(int each = 4) {
    write_files(folder_, class_folders(each));
    return folder_.path();
  }
  std::string target(const std::string& name = "out/a.dts") {
    folder_.make_folder("out");
    return folder_.path(name);
  }
  bool exists(const std::string& name) const { return fs::exists(folder_.path(name)); }

  // Names, labels, order, sizes, checksums and bytes are the source's.
  static void expect_same(const Dataset& source, const Dataset& packed) {
    ASSERT_EQ(source.splits.size(), packed.splits.size());
    EXPECT_EQ(source.classes, packed.classes);
    LoaderOptions options;
    options.height = options.width = 8;
    for (size_t k = 0; k < source.splits.size(); ++k) {
      const Split &a = source.splits[k], &b = packed.splits[k];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.labels, b.labels);
      ASSERT_EQ(a.files.size(), b.files.size());
      const auto of_source = identity(a, options), of_packed = identity(b, options);
      for (const auto& [name, value] : of_source) {
        ASSERT_EQ(of_packed.count(name), 1u) << name;
        EXPECT_EQ(of_packed.at(name), value) << name;
      }
      std::string x, y;
      for (size_t i = 0; i < a.files.size(); ++i) {
        EXPECT_EQ(a.store->path(a.files[i]), b.store->path(b.files[i]));
        a.store->read(a.files[i], x);
        b.store->read(b.files[i], y);
        EXPECT_EQ(x, y) << a.path(int64_t(i));
      }
      EXPECT_EQ(pixels(a), pixels(b));
    }
  }
  static std::vector<uint8_t> pixels(const Split& split) {
    LoaderOptions o;
    o.batch = split.size(), o.height = o.width = 8, o.threads = 2;
    const auto loader = make_loader(split, o);
    loader->start_epoch(0, 0);
    BatchView view;
    EXPECT_TRUE(loader->next(view));
    const auto* const bytes = static_cast<const uint8_t*>(view.images);
    return {bytes, bytes + split.size() * 8 * 8 * 3};
  }
  void round_trip(const std::string& source) {
    const PackReport report = pack(source, target());
    const Dataset packed = open_dataset(target());
    expect_same(open_dataset(source), packed);
    int64_t all = 0;
    for (const Split& split : packed.splits) all += split.size();
    EXPECT_EQ(report.pictures, all);
    EXPECT_EQ(report.bytes, int64_t(fs::file_size(target())));
    EXPECT_FALSE(exists("out/a.dts.part"));
    fs::remove(target());
  }

  TemporaryFolder folder_;
};

}  // namespace ren::data::test
