// SPDX-License-Identifier: Apache-2.0
#include "data/decode/decode.h"

#include "data/decode/formats.h"
#include "engine/base/status.h"

namespace ren::data {

struct Decoder::State {
  JpegDecoder jpeg;
};

Decoder::Decoder() : state_(std::make_unique<State>()) {}
Decoder::~Decoder() = default;

Format recognise_format(std::string_view head) {
  const auto at = [&](size_t offset, std::string_view magic) {
    return head.substr(std::min(offset, head.size()), magic.size()) == magic;
  };
  if (head.empty()) return Format::empty;
  if (at(0, "\xFF\xD8\xFF")) return Format::jpeg;
  if (at(0, "\x89PNG\r\n\x1A\n")) return Format::png;
  if (at(0, "GIF8")) return Format::gif;
  if (at(0, "RIFF") && at(8, "WEBP")) return Format::webp;
  if (at(0, "BM")) return Format::bmp;
  if (at(0, std::string_view("II*\0", 4)) || at(0, std::string_view("MM\0*", 4))) return Format::tiff;
  if (at(4, "ftyp")) return Format::heif;
  if (at(4, "jP  ") || at(0, "\xFF\x4F\xFF\x51")) return Format::jpeg2000;
  return Format::unknown;
}

const char* name_of(Format format) {
  switch (format) {
    case Format::unknown:
      return "unknown";
    case Format::empty:
      return "empty";
    case Format::jpeg:
      return "JPEG";
    case Format::png:
      return "PNG";
    case Format::gif:
      return "GIF";
    case Format::webp:
      return "WebP";
    case Format::bmp:
      return "BMP";
    case Format::tiff:
      return "TIFF";
    case Format::heif:
      return "HEIF or AVIF";
    case Format::jpeg2000:
      return "JPEG 2000";
  }
  return "unknown";
}

namespace {

// JPEG or PNG, or an error that says what it is instead.
Format check_format(std::string_view bytes) {
  const Format format = recognise_format(bytes.substr(0, kFormatHeadBytes));
  switch (format) {
    case Format::jpeg:
    case Format::png:
      return format;
    case Format::empty:
      fail(StatusCode::invalid_data, "the file is empty");
    case Format::unknown:
      fail(StatusCode::invalid_data, "the content is no picture (neither JPEG nor PNG by its first bytes)");
    default:
      fail(StatusCode::unsupported, "the content is {}; JPEG and PNG are read: convert it", name_of(format));
  }
}

}  // namespace

DecodeResult Decoder::decode(std::string_view bytes, const DecodeOptions& options, Image& image) {
  if (options.form.is_raw()) return copy_pixels(bytes, options, image);
  if (check_format(bytes) == Format::jpeg) return state_->jpeg.decode(bytes, options, image);
  return decode_png(bytes, options, image);
}

DecodeResult Decoder::decode_part(std::string_view bytes, const DecodeOptions& options,
                                  const ChooseRegion& choose, Image& image, DecodedPart& part) {
  Region chosen;
  const bool is_jpeg =
      !options.form.is_raw() && recognise_format(bytes.substr(0, kFormatHeadBytes)) == Format::jpeg;
  if (is_jpeg && state_->jpeg.decode_part(bytes, options, choose, chosen, image, part)) return {};
  const DecodeResult result = decode(bytes, options, image);
  const Region& r = part.pixels = chosen.width > 0 ? chosen : choose(image.width(), image.height());
  part.box = {0, 0, float(r.width), float(r.height)};
  return result;
}

PictureHeader Decoder::look(std::string_view bytes) {
  const Format format = check_format(bytes);
  PictureHeader header = format == Format::jpeg ? state_->jpeg.look(bytes) : look_at_png(bytes);
  header.format = format;
  return header;
}

void check_size(uint64_t width, uint64_t height, const DecodeOptions& options) {
  if (width == 0 || height == 0)
    fail(StatusCode::invalid_data, "the picture is {} x {} pixels", width, height);
  if (width > uint64_t(options.max_pixels) / height)
    fail(StatusCode::invalid_data, "the header says {} x {} pixels, more than the limit of {}", width, height,
         options.max_pixels);
}

void rgb_to_gray(const uint8_t* rgb, uint8_t* gray, int width) {
  for (int x = 0; x < width; ++x) gray[x] = luma(rgb[3 * x], rgb[3 * x + 1], rgb[3 * x + 2]);
}

}  // namespace ren::data
