// SPDX-License-Identifier: Apache-2.0
// Damaged pictures and zip archives; other formats have their tests of this kind beside their own.
#include "data/mutation.h"

#include <unistd.h>

#include <algorithm>

#include "data/dataset.h"
#include "data/support.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

const std::vector<const char*> kJpegs = {"baseline_420.jpg", "progressive_420.jpg", "progressive_444.jpg",
                                         "restart.jpg",      "cmyk_adobe.jpg",      "gray.jpg"};
const std::vector<const char*> kPngs = {"rgb.png",        "palette_4bit.png",        "rgba_16bit.png",
                                        "interlaced.png", "palette_transparent.png", "one_bit.png"};

Region any_part(int width, int height, RandomStream& random) {
  const int w = 1 + int(random.below(uint32_t(width))), h = 1 + int(random.below(uint32_t(height)));
  return {int(random.below(uint32_t(width - w + 1))), int(random.below(uint32_t(height - h + 1))), w, h};
}

// In every way that the loader decodes.
void decode_damaged(const std::string& bytes, uint64_t run, RandomStream& random) {
  static Decoder decoder;  // one for all, as a loader's thread has it
  static Image image;
  DecodeOptions options;
  options.channels = run % 2 ? 3 : 1;
  options.tolerate_damage = run % 3 == 0;
  options.max_pixels = 1 << 22;  // sizes that were changed to larger ones cost time, not insight
  DecodedPart part;
  if (run % 5 == 0) options.reduced_width = options.reduced_height = 4;
  const auto choose = [&](int width, int height) { return any_part(width, height, random); };
  if (run % 4 < 2)
    decoder.decode_part(bytes + (run % 4 ? "" : "\xFF\xD9"), options, choose, image, part);
  else
    decoder.decode(bytes, options, image);
  ASSERT_LE(int64_t{image.width()} * image.height(), options.max_pixels);
  ASSERT_LE(part.pixels.left + part.pixels.width, image.width());
  ASSERT_LE(part.pixels.top + part.pixels.height, image.height());
  ASSERT_LE(part.box.right, float(part.pixels.width));
  ASSERT_LE(part.box.bottom, float(part.pixels.height));
}

TEST(Mutation, PicturesNeverCrashTheDecoder) {
  for (const auto& names : {kJpegs, kPngs})
    for (const char* name : names) {
      const std::string bytes = fixture(name);
      expect_survives(400, 7, {20, 20}, [&](uint64_t i, RandomStream& random) {
        decode_damaged(mutate(bytes, random), i, random);
      });
    }
}

// What bytes that are changed here and there hardly reach: they have wrong lengths and checksums at once.
TEST(Mutation, PartsOfPicturesNeverCrashTheDecoder) {
  for (const auto& [names, change] : {std::pair{&kJpegs, &mutate_jpeg}, std::pair{&kPngs, &mutate_png}})
    for (const char* name : *names) {
      const std::string bytes = fixture(name);
      expect_survives(400, 11, {20, 20},
                      [&, names = names, change = change](uint64_t i, RandomStream& random) {
                        const std::string other = fixture((*names)[random.below(uint32_t(names->size()))]);
                        decode_damaged(change(bytes, other, random), i, random);
                      });
    }
}

// Else the two tests above would be about files that no longer are what they are called.
TEST(Mutation, PartsOfPicturesAreTakenApartAndPutTogether) {
  std::string first, second;
  for (uint64_t i = 0; i < 400; ++i) {
    RandomStream random(3, 12, i);
    const std::string jpeg = mutate_jpeg(fixture("restart.jpg"), fixture("gray.jpg"), random);
    const std::string png = mutate_png(fixture("rgb.png"), fixture("one_bit.png"), random);
    first += jpeg.substr(0, 2) == "\xFF\xD8" ? 'y' : 'n';
    second += png.substr(12, 4) == "IHDR" ? 'y' : 'n';
  }
  EXPECT_GT(std::count(first.begin(), first.end(), 'y'), 200);
  EXPECT_GT(std::count(second.begin(), second.end(), 'y'), 200);
}

// A hang must not look like a slow machine. Ends a process of its own.
TEST(MutationDeathTest, TheWatchdogEndsAHang) {
  EXPECT_DEATH(
      {
        const Watchdog watchdog(5, 17, 1);
        for (;;) pause();
      },
      "damaged input takes more than 1 s: purpose 5, run 17");
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
