// SPDX-License-Identifier: Apache-2.0
// Damaged input of every kind must end in pixels or in an Error, never in a crash; run
// under the sanitizers it is a small fuzzer without a corpus that grows.
#include <cstring>

#include "data/dataset.h"
#include "data/support.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"

namespace ren::data::test {
namespace {

TEST(Mutation, PicturesNeverCrashTheDecoder) {
  Decoder decoder;
  Image image;
  for (const char* name : {"baseline_420.jpg", "progressive_420.jpg", "progressive_444.jpg", "restart.jpg",
                           "cmyk_adobe.jpg", "gray.jpg", "rgb.png", "palette_4bit.png", "rgba_16bit.png",
                           "interlaced.png", "palette_transparent.png", "one_bit.png"}) {
    const std::string bytes = fixture(name);
    expect_survives(400, 7, {20, 20}, [&](uint64_t i, RandomStream& random) {
      DecodeOptions options;
      options.channels = i % 2 ? 3 : 1;
      options.tolerate_damage = i % 3 == 0;
      options.max_pixels = 1 << 22;  // sizes that were changed to larger ones cost time, not insight
      const std::string changed = mutate(bytes, random);
      DecodedPart part;
      if (i % 5 == 0) options.reduced_width = options.reduced_height = 4;
      const auto choose = [&](int width, int height) {
        const int w = 1 + int(random.below(uint32_t(width))), h = 1 + int(random.below(uint32_t(height)));
        return Region{int(random.below(uint32_t(width - w + 1))), int(random.below(uint32_t(height - h + 1))),
                      w, h};
      };
      if (i % 4 < 2)
        decoder.decode_part(changed + (i % 4 ? "" : "\xFF\xD9"), options, choose, image, part);
      else
        decoder.decode(changed, options, image);
      ASSERT_LE(int64_t{image.width()} * image.height(), options.max_pixels);
      ASSERT_LE(part.pixels.left + part.pixels.width, image.width());
      ASSERT_LE(part.pixels.top + part.pixels.height, image.height());
      ASSERT_LE(part.box.right, float(part.pixels.width));
      ASSERT_LE(part.box.bottom, float(part.pixels.height));
    });
  }
}

TEST(Mutation, ArchivesNeverCrashTheReader) {
  TemporaryFolder folder;
  Files files;
  for (int i = 0; i < 6; ++i)
    files.emplace_back(fmt::format("root/train/{}/{}.jpg", i % 2 ? "a" : "b", i), jpeg_of(8, 8, uint32_t(i)));
  for (const bool compress : {false, true}) {
    write_zip(folder.path("whole.zip"), files, compress);
    const std::string bytes = read_file(folder.path("whole.zip"));
    const size_t directory = bytes.find("PK\x01\x02");
    expect_survives(300, 8, {15, 50}, [&](uint64_t i, RandomStream& random) {
      // Half of the changes go where the structure is, at the end.
      std::string changed = i % 2 ? mutate(bytes, random)
                                  : bytes.substr(0, directory) + mutate(bytes.substr(directory), random);
      const std::string path = folder.write("changed.zip", changed);
      read_all(open_dataset(path));
    });
  }
}

}  // namespace
}  // namespace ren::data::test
