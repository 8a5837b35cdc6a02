// SPDX-License-Identifier: Apache-2.0
// Decoding and resizing against what Pillow makes of the same files (make_fixtures.py).
#include <nlohmann/json.hpp>

#include <cmath>

#include "data/augment/resize.h"
#include "data/augment/resize_kernels.h"
#include "data/augment/transform.h"
#include "data/support.h"

namespace ren::data::test {
namespace {

using nlohmann::json;

const json& fixture_index() {
  static const json index = json::parse(fixture("index.json"));
  return index;
}

std::string_view expected(const json& at, size_t bytes) {
  static const std::string all = fixture("expected.bin");
  return std::string_view(all).substr(at.get<size_t>(), bytes);
}

std::string_view bytes_of(const Image& image) {
  return {reinterpret_cast<const char*>(image.data()), image.bytes()};
}

// The count of bytes that differ and by how much at most: more telling than "not equal".
std::string difference(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return "sizes differ";
  int count = 0, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const int d = std::abs(int(uint8_t(a[i])) - int(uint8_t(b[i])));
    count += d != 0;
    worst = std::max(worst, d);
  }
  return count == 0 ? "" : fmt::format("{} of {} bytes differ, by {} at most", count, a.size(), worst);
}

Filter filter_of(const json& entry) {
  return entry.at("filter") == "bilinear" ? Filter::bilinear : Filter::bicubic;
}

TEST(Pixels, DecodedAsPillowDoes) {
  int pictures = 0;
  for (const json& entry : fixture_index().at("decode")) {
    SCOPED_TRACE(entry.at("file"));
    const size_t pixels = entry.at("width").get<size_t>() * entry.at("height").get<size_t>();
    const Image rgb = decode_fixture(entry.at("file"), 3);
    ASSERT_EQ(rgb.width(), entry.at("width"));
    ASSERT_EQ(rgb.height(), entry.at("height"));
    EXPECT_EQ(difference(bytes_of(rgb), expected(entry.at("rgb"), pixels * 3)), "");
    const Image gray = decode_fixture(entry.at("file"), 1);
    EXPECT_EQ(difference(bytes_of(gray), expected(entry.at("gray"), pixels)), "");
    ++pictures;
  }
  EXPECT_GE(pictures, 30);
}

TEST(Pixels, OneDecoderServesAllPicturesInAnyOrder) {
  Decoder decoder;
  Image image;
  const json& list = fixture_index().at("decode");
  for (size_t i = 0; i < 3 * list.size(); ++i) {
    const json& entry = list[(i * 7) % list.size()];
    SCOPED_TRACE(entry.at("file"));
    if (i % 4 == 0) {
      EXPECT_THROW(decoder.decode("\xFF\xD8\xFF\xE0 not much of a picture", {}, image), Error);
    }
    decoder.decode(fixture(entry.at("file")), {}, image);
    const size_t bytes = entry.at("width").get<size_t>() * entry.at("height").get<size_t>() * 3;
    EXPECT_EQ(difference(bytes_of(image), expected(entry.at("rgb"), bytes)), "");
  }
}

TEST(Pixels, ResizedAsPillowDoes) {
  int cases = 0;
  for (const json& entry : fixture_index().at("resize")) {
    SCOPED_TRACE(entry.dump());
    const Image source = decode_fixture(entry.at("file"), entry.at("channels"));
    const json& b = entry.at("box");
    const Box box{b[0], b[1], b[2], b[3]};
    const int width = entry.at("width"), height = entry.at("height");
    const std::string_view wanted = expected(entry.at("at"), size_t(width * height * source.channels()));
    Image fast, plain;
    Resizer().resize(source.view(), box, width, height, filter_of(entry), fast);
    EXPECT_EQ(difference(bytes_of(fast), wanted), "");
    resize_reference(source.view(), box, width, height, filter_of(entry), plain);
    EXPECT_EQ(difference(bytes_of(plain), wanted), "");
    ++cases;
  }
  EXPECT_GE(cases, 60);
}

TEST(Pixels, FastResizeEqualsThePlainOneAtManySizes) {
  if (avx2_resize_kernels() == nullptr) GTEST_SKIP() << "no AVX2 here: there is only the plain one";
  RandomStream random(7, 2, 0);
  Resizer resizer;
  for (int i = 0; i < 400; ++i) {
    const int channels = i % 4 == 0 ? 1 : 3;
    const uint32_t widest =
        i % 8 == 1 ? 3000 : 90;  // the weights of neighbours differ in number at the edges
    const Image source =
        make_picture(1 + int(random.below(widest)), 1 + int(random.below(90)), channels, uint32_t(i));
    const int width = 1 + int(random.below(80)), height = 1 + int(random.below(80));
    const Filter filter = i % 2 ? Filter::bicubic : Filter::bilinear;
    const float right = random.uniform(0.5f, 1.0f) * float(source.width());
    const float bottom = random.uniform(0.5f, 1.0f) * float(source.height());
    const Box box = i % 3 == 0 ? Box{right * 0.3f, bottom * 0.2f, right, bottom}
                               : Box{0, 0, float(source.width()), float(source.height())};
    Image fast, plain;
    resizer.resize(source.view(), box, width, height, filter, fast);
    resize_reference(source.view(), box, width, height, filter, plain);
    ASSERT_EQ(difference(bytes_of(fast), bytes_of(plain)), "") << i;
  }
}

// Extremes: black and white edges make bicubic overshoot below 0 and above 255.
TEST(Pixels, FastResizeClampsAsThePlainOneDoes) {
  Image source(64, 64, 3);
  for (size_t i = 0; i < source.bytes(); ++i)
    source.data()[i] = (i / 24 + i / source.stride() / 8) % 2 ? 255 : 0;
  for (const int size : {1, 5, 33, 63, 65, 200}) {
    Image fast, plain;
    Resizer().resize(source.view(), size, size, Filter::bicubic, fast);
    resize_reference(source.view(), {0, 0, 64, 64}, size, size, Filter::bicubic, plain);
    EXPECT_EQ(difference(bytes_of(fast), bytes_of(plain)), "") << size;
  }
}

TEST(Pixels, ResizeOfACropIsThatOfItsCopy) {
  const Image source = decode_fixture("baseline_444.jpg", 3);
  const ImageView crop = source.view().crop({11, 7, 30, 22});
  Image copy(30, 22, 3);
  for (int y = 0; y < 22; ++y) std::memcpy(copy.row(y), crop.row(y), copy.stride());
  Image a, b;
  Resizer().resize(crop, 24, 24, Filter::bilinear, a);
  Resizer().resize(copy.view(), 24, 24, Filter::bilinear, b);
  EXPECT_EQ(difference(bytes_of(a), bytes_of(b)), "");
}

TEST(Pixels, FittedAsTorchvisionDoes) {
  int cases = 0;
  for (const json& entry : fixture_index().at("fit")) {
    SCOPED_TRACE(entry.dump());
    Augmentation augmentation = Augmentation::eval();
    augmentation.filter = filter_of(entry);
    augmentation.resize_short = entry.at("short");
    augmentation.keep_exact_size = false;
    const int width = entry.at("width"), height = entry.at("height");
    Transformer transformer(augmentation, height, width, 3);
    const Image source = decode_fixture(entry.at("file"), 3);
    RandomStream random(0, 0, 0);
    std::string out(size_t(width * height * 3), '\0');
    transformer.finish(transformer.prepare(source), random, reinterpret_cast<uint8_t*>(out.data()));
    EXPECT_EQ(difference(out, expected(entry.at("at"), out.size())), "");
    ++cases;
  }
  EXPECT_GE(cases, 36);
}

// A part of a picture against that part of its whole, at many offsets to the blocks.
void check_parts(const std::string& bytes, uint64_t parts) {
  Decoder decoder;
  Image whole, gray, image;
  DecodeOptions options;
  decoder.decode(bytes, options, whole);
  options.channels = 1;
  decoder.decode(bytes, options, gray);
  for (uint64_t i = 0; i < parts; ++i) {
    options.channels = i % 5 == 0 ? 1 : 3;
    RandomStream random(4, 3, i);
    Region wanted;
    DecodedPart part;
    const auto choose = [&](int width, int height) {
      wanted.width = 1 + int(random.below(uint32_t(width)));
      wanted.height = 1 + int(random.below(uint32_t(height)));
      wanted.left = int(random.below(uint32_t(width - wanted.width + 1)));
      wanted.top = int(random.below(uint32_t(height - wanted.height + 1)));
      return wanted;
    };
    decoder.decode_part(bytes, options, choose, image, part);
    ASSERT_EQ(part.pixels.width, wanted.width);
    ASSERT_EQ(part.pixels.height, wanted.height);
    const ImageView a = image.view().crop(part.pixels),
                    b = (options.channels == 1 ? gray : whole).view().crop(wanted);
    for (int y = 0; y < wanted.height; ++y)
      ASSERT_EQ(std::memcmp(a.row(y), b.row(y), size_t(a.width * a.channels)), 0)
          << i << ": row " << y << " of " << wanted.left << ',' << wanted.top << ' ' << wanted.width << 'x'
          << wanted.height;
  }
}

TEST(Pixels, PartsAreThoseOfTheWhole) {
  for (const json& entry : fixture_index().at("decode")) {
    SCOPED_TRACE(entry.at("file"));
    check_parts(fixture(entry.at("file")), 200);
  }
}

TEST(Pixels, PartsOfLargerPicturesInEverySampling) {
  for (const bool progressive : {false, true})
    for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}}) {
      SCOPED_TRACE(fmt::format("{}x{} {}", h, v, progressive));
      check_parts(encode_jpeg(make_picture(211, 165, 3, 8), {80, h, v, progressive}), 120);
    }
}

// The reduced parts, too, are those of the reduced whole: each factor, every offset to its blocks.
TEST(Pixels, ReducedPartsAreThoseOfTheReducedWhole) {
  Decoder decoder;
  for (const bool progressive : {false, true})
    for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}})
      for (const int factor : {2, 4, 8}) {
        const std::string bytes = encode_jpeg(make_picture(211, 165, 3, 8), {80, h, v, progressive});
        DecodeOptions options;
        Image whole, image;
        DecodedPart part;
        options.reduced_width = 211 / factor, options.reduced_height = 165 / factor;
        const auto all = [](int width, int height) { return Region{0, 0, width, height}; };
        decoder.decode_part(bytes, options, all, whole, part);
        ASSERT_EQ(whole.width(), (211 + factor - 1) / factor);
        ASSERT_EQ(whole.height(), (165 + factor - 1) / factor);
        for (uint64_t i = 0; i < 60; ++i) {
          RandomStream random(4, 4, i);
          Region wanted;
          const auto choose = [&](int width, int height) {
            wanted.width = 16 + int(random.below(uint32_t(width - 15)));
            wanted.height = 16 + int(random.below(uint32_t(height - 15)));
            wanted.left = int(random.below(uint32_t(width - wanted.width + 1)));
            wanted.top = int(random.below(uint32_t(height - wanted.height + 1)));
            options.reduced_width = wanted.width / factor, options.reduced_height = wanted.height / factor;
            return wanted;
          };
          // the sizes are looked at after the choice
          decoder.decode_part(bytes, options, choose, image, part);
          const Region place{wanted.left / factor, wanted.top / factor, part.pixels.width,
                             part.pixels.height};
          EXPECT_FLOAT_EQ(part.box.left, float(wanted.left) / float(factor) - float(place.left));
          EXPECT_FLOAT_EQ(part.box.bottom - part.box.top, float(wanted.height) / float(factor));
          ASSERT_LE(place.left + place.width, whole.width());
          ASSERT_LE(place.top + place.height, whole.height());
          const ImageView a = image.view().crop(part.pixels), b = whole.view().crop(place);
          for (int y = 0; y < place.height; ++y)
            ASSERT_EQ(std::memcmp(a.row(y), b.row(y), size_t(a.width * a.channels)), 0)
                << fmt::format("{}x{} {} /{}: row {} of {}", h, v, progressive, factor, y, i);
        }
      }
}

TEST(Decode, FormatIsSeenInTheContent) {
  EXPECT_EQ(recognise_format(fixture("gray.jpg").substr(0, kFormatHeadBytes)), Format::jpeg);
  EXPECT_EQ(recognise_format(fixture("rgb.png").substr(0, kFormatHeadBytes)), Format::png);
  EXPECT_EQ(recognise_format("GIF89a"), Format::gif);
  EXPECT_EQ(recognise_format(std::string_view("RIFF\0\0\0\0WEBPVP8 ", 16)), Format::webp);
  EXPECT_EQ(recognise_format("BM"), Format::bmp);
  EXPECT_EQ(recognise_format(std::string_view("II*\0", 4)), Format::tiff);
  EXPECT_EQ(recognise_format(std::string_view("\0\0\0\x18"
                                              "ftypheic",
                                              12)),
            Format::heif);
  EXPECT_EQ(recognise_format(""), Format::empty);
  EXPECT_EQ(recognise_format("hello"), Format::unknown);
}

std::string reason(const std::string& bytes, DecodeOptions options = {}) {
  Decoder decoder;
  Image image;
  return error_of([&] { decoder.decode(bytes, options, image); }).what();
}

TEST(Decode, SaysWhatIsWrong) {
  const std::string jpeg = fixture("baseline_420.jpg"), png = fixture("rgb.png");
  EXPECT_EQ(reason(""), "the file is empty");
  EXPECT_NE(reason("hello, world, I am text").find("no picture"), std::string::npos);
  EXPECT_NE(reason("GIF89a............").find("GIF"), std::string::npos);
  for (const double part : {0.5, 0.8, 0.99})
    EXPECT_EQ(reason(jpeg.substr(0, size_t(double(jpeg.size()) * part))), "the JPEG file is truncated")
        << part;
  for (const double part : {0.3, 0.6, 0.95})
    EXPECT_EQ(reason(png.substr(0, size_t(double(png.size()) * part))), "the PNG file is truncated") << part;
  std::string broken = png;
  broken[png.size() / 2] = char(broken[png.size() / 2] ^ 0x55);
  EXPECT_NE(reason(broken).find("the PNG file is damaged"), std::string::npos);

  std::string twelve = jpeg;
  const size_t frame = twelve.find("\xFF\xC0");
  twelve[frame + 4] = 12;
  EXPECT_NE(reason(twelve).find("isn't an 8-bit one"), std::string::npos);
  std::string huge = jpeg;
  huge[frame + 5] = huge[frame + 6] = huge[frame + 7] = char(0xF0);
  EXPECT_NE(reason(huge).find("more than the limit"), std::string::npos);
  DecodeOptions small;
  small.max_pixels = 100;
  EXPECT_NE(reason(jpeg, small).find("53 x 37"), std::string::npos);
  EXPECT_NE(reason(png, small).find("29 x 23"), std::string::npos);
}

TEST(Decode, DamagedFilesGiveWhatCanBeDecodedIfWanted) {
  DecodeOptions options;
  options.tolerate_damage = true;
  Decoder decoder;
  Image whole, part;
  for (const char* name : {"baseline_444.jpg", "rgb.png"}) {
    const bool is_jpeg = std::string_view(name).ends_with("jpg");
    const std::string bytes = fixture(name);
    decoder.decode(bytes, {}, whole);
    const DecodeResult result = decoder.decode(bytes.substr(0, bytes.size() * 7 / 10), options, part);
    EXPECT_TRUE(result.truncated) << name;
    ASSERT_EQ(part.bytes(), whole.bytes());
    const size_t first_rows = is_jpeg ? whole.stride() * 6 : 0;
    EXPECT_EQ(std::memcmp(part.data(), whole.data(), first_rows), 0) << name;
    EXPECT_NE(std::memcmp(part.data(), whole.data(), whole.bytes()), 0) << name;
    EXPECT_EQ(part.data()[part.bytes() - 1], 128) << name;
  }
}

}  // namespace
}  // namespace ren::data::test
