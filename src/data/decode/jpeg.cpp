// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>
#include <vector>

#include <jerror.h>
#include <jpeglib.h>

#include "data/decode/formats.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr int kMargin = 2;       // pixels around a part; one sample of halved chroma
constexpr int kMostScans = 500;  // a few bytes a scan can cost seconds each

enum class Outcome { done, failed, truncated, twelve_bit, too_many_scans };

// libjpeg's error manager with what a failure needs. libjpeg is C: it leaves by longjmp,
// so the functions that it may leave hold no object with a destructor.
struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  Outcome outcome;
  bool truncated;
  bool tolerate;
  char message[JMSG_LENGTH_MAX];
};

ErrorManager& manager_of(j_common_ptr info) { return *reinterpret_cast<ErrorManager*>(info->err); }

[[noreturn]] void leave(ErrorManager& manager, Outcome outcome) {
  manager.outcome = outcome;
  std::longjmp(manager.escape, 1);
}

void on_error(j_common_ptr info) {
  ErrorManager& manager = manager_of(info);
  info->err->format_message(info, manager.message);
  leave(manager, info->err->msg_code == JERR_BAD_PRECISION ? Outcome::twelve_bit : Outcome::failed);
}

// level -1 is a warning: corrupt data that the decoder went on after.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  ErrorManager& manager = manager_of(info);
  ++info->err->num_warnings;
  if (info->err->msg_code != JWRN_JPEG_EOF) return;
  manager.truncated = true;
  if (!manager.tolerate) leave(manager, Outcome::truncated);
}

void no_output(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number > kMostScans) leave(manager_of(info), Outcome::too_many_scans);
}

// Adobe's inverted CMYK, as Pillow reads and converts it.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int width) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int k = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * k + 128;
      rgb[c] = uint8_t(std::max(0, k - (((product >> 8) + product) >> 8)));
    }
  }
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  ErrorManager errors{};
  jpeg_progress_mgr progress{};
  bool created = false;
  std::vector<uint8_t> row;  // one row as libjpeg gives it, where it isn't the image's

  void create();
  Outcome read_header(std::string_view bytes);
  Outcome read_rows(Image& image);
  Outcome read_part(Image& image, const Region& wanted, Region& part);
  void reduce(int factor);
  void convert_row(const uint8_t* from, uint8_t* to, int channels) const;
  [[noreturn]] void fail_decode(Outcome outcome);
};

void JpegDecoder::State::create() {
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = on_error;
  errors.base.emit_message = on_message;
  errors.base.output_message = no_output;
  progress.progress_monitor = on_progress;
  errors.outcome = Outcome::done;
  if (setjmp(errors.escape) != 0) return;
  jpeg_create_decompress(&info);
  info.progress = &progress;
  created = true;
}

Outcome JpegDecoder::State::read_header(std::string_view bytes) {
  if (setjmp(errors.escape) != 0) return errors.outcome;
  jpeg_abort_decompress(&info);  // whatever the picture before left
  info.err->reset_error_mgr(reinterpret_cast<j_common_ptr>(&info));
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  return Outcome::done;
}

Outcome JpegDecoder::State::read_rows(Image& image) {
  if (setjmp(errors.escape) != 0) return errors.outcome;
  jpeg_start_decompress(&info);
  const bool direct = info.output_components == image.channels();
  while (info.output_scanline < info.output_height) {
    const int y = int(info.output_scanline);
    JSAMPROW target = direct ? image.row(y) : row.data();
    jpeg_read_scanlines(&info, &target, 1);
    if (!direct) convert_row(row.data(), image.row(y), image.channels());
  }
  jpeg_finish_decompress(&info);
  return Outcome::done;
}

// Chroma is smoothed over its neighbours, and the decoder treats the edges of what it is
// asked for as those of the picture: the margin keeps both out of the part.
Outcome JpegDecoder::State::read_part(Image& image, const Region& wanted, Region& part) {
  if (setjmp(errors.escape) != 0) return errors.outcome;
  jpeg_start_decompress(&info);
  const int width = int(info.output_width), height = int(info.output_height);
  const int left = std::max(0, wanted.left - kMargin),
            right = std::min(width, wanted.left + wanted.width + kMargin);
  const int top = std::max(0, wanted.top - kMargin),
            bottom = std::min(height, wanted.top + wanted.height + kMargin);
  JDIMENSION begin = JDIMENSION(left), columns = JDIMENSION(right - left);
  if (right - left < width) jpeg_crop_scanline(&info, &begin, &columns);
  image.resize(int(columns), bottom - top, image.channels());
  part = {wanted.left - int(begin), wanted.top - top, wanted.width, wanted.height};
  if (top > 0) jpeg_skip_scanlines(&info, JDIMENSION(top));
  const bool direct = info.output_components == image.channels();
  while (int(info.output_scanline) < bottom) {
    const int y = int(info.output_scanline) - top;
    JSAMPROW target = direct ? image.row(y) : row.data();
    jpeg_read_scanlines(&info, &target, 1);
    if (!direct) convert_row(row.data(), image.row(y), image.channels());
  }
  jpeg_abort_decompress(&info);
  return Outcome::done;
}

void JpegDecoder::State::reduce(int factor) {
  info.scale_num = 1;
  info.scale_denom = unsigned(factor);
}

void JpegDecoder::State::convert_row(const uint8_t* from, uint8_t* to, int channels) const {
  const int width = int(info.output_width);
  if (info.out_color_space != JCS_CMYK) return rgb_to_gray(from, to, width);
  if (channels == 3) return cmyk_to_rgb(from, to, width);
  for (int x = 0; x < width; ++x) {
    uint8_t rgb[3];
    cmyk_to_rgb(from + 4 * x, rgb, 1);
    to[x] = luma(rgb[0], rgb[1], rgb[2]);
  }
}

void JpegDecoder::State::fail_decode(Outcome outcome) {
  switch (outcome) {
    case Outcome::truncated:
      fail(StatusCode::invalid_data, "the JPEG file is truncated");
    case Outcome::twelve_bit:
      fail(StatusCode::unsupported, "the JPEG file isn't an 8-bit one ({})", errors.message);
    case Outcome::too_many_scans:
      fail(StatusCode::invalid_data, "the JPEG file has more than {} scans", kMostScans);
    default:
      fail(StatusCode::invalid_data, "the JPEG file is damaged: {}", errors.message);
  }
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}

JpegDecoder::~JpegDecoder() {
  if (state_->created) jpeg_destroy_decompress(&state_->info);
}

// Reads the header and settles what comes out.
void JpegDecoder::begin(std::string_view bytes, const DecodeOptions& options) {
  State& s = *state_;
  if (!s.created) s.create();
  if (!s.created) fail(StatusCode::out_of_memory, "the JPEG decoder can't be created: {}", s.errors.message);
  s.errors.truncated = false;
  s.errors.tolerate = options.tolerate_damage;
  if (const Outcome outcome = s.read_header(bytes); outcome != Outcome::done) s.fail_decode(outcome);
  check_size(s.info.image_width, s.info.image_height, options);
  if (s.info.num_components == 2 || s.info.num_components > 4)
    fail(StatusCode::unsupported, "the JPEG file has {} colour components", s.info.num_components);

  s.info.dct_method = JDCT_ISLOW;
  s.info.do_fancy_upsampling = TRUE;
  const bool four = s.info.num_components == 4;
  // A gray picture is asked for as gray where gray is wanted: the luma of (v, v, v) is v.
  const bool gray = s.info.num_components == 1 && options.channels == 1;
  s.info.out_color_space = four ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
  s.row.resize(size_t(s.info.image_width) * 4);
}

namespace {

// The largest of the reductions that libjpeg-turbo has fast code for and that leave the part enough pixels.
int reduction_of(const Region& part, const DecodeOptions& options) {
  const int width = options.reduced_width, height = options.reduced_height;
  if (width <= 0 || height <= 0) return 1;
  for (const int factor : {8, 4, 2})
    if (part.width / factor >= width && part.height / factor >= height) return factor;
  return 1;
}

// The pixels of the reduced picture that a part touches.
Region reduced(const Region& r, int factor) {
  const int left = r.left / factor, top = r.top / factor;
  return {left, top, (r.left + r.width + factor - 1) / factor - left,
          (r.top + r.height + factor - 1) / factor - top};
}

// A part within the reduced pixels that it touches.
Box box_of(const Region& r, const Region& touched, int factor) {
  const auto place = [&](int position, int first) { return float(position) / float(factor) - float(first); };
  return {place(r.left, touched.left), place(r.top, touched.top), place(r.left + r.width, touched.left),
          place(r.top + r.height, touched.top)};
}

}  // namespace

PictureHeader JpegDecoder::look(std::string_view bytes) {
  begin(bytes, {});
  const jpeg_decompress_struct& info = state_->info;
  return {Format::jpeg, int(info.image_width), int(info.image_height), info.num_components == 1};
}

DecodeResult JpegDecoder::decode(std::string_view bytes, const DecodeOptions& options, Image& image) {
  begin(bytes, options);
  State& s = *state_;
  image.resize(int(s.info.image_width), int(s.info.image_height), options.channels);
  if (const Outcome outcome = s.read_rows(image); outcome != Outcome::done) s.fail_decode(outcome);
  return {int(s.info.err->num_warnings), s.errors.truncated};
}

bool JpegDecoder::decode_part(std::string_view bytes, const DecodeOptions& options,
                              const ChooseRegion& choose, Region& chosen, Image& image, DecodedPart& part) {
  // Whether a file is bad must not depend on the part: one without its end is decoded in full.
  if (options.tolerate_damage || !bytes.ends_with("\xFF\xD9")) return false;
  begin(bytes, options);
  State& s = *state_;
  const int width = int(s.info.image_width), height = int(s.info.image_height);
  chosen = choose(width, height);
  const int factor = reduction_of(chosen, options);
  if (factor == 1 && int64_t{chosen.width} * chosen.height > int64_t{width} * height / 8 * 7) return false;
  image.resize(1, 1, options.channels);
  s.reduce(factor);
  const Region touched = reduced(chosen, factor);
  part.box = box_of(chosen, touched, factor);
  // Any complaint: the full decode decides.
  return s.read_part(image, touched, part.pixels) == Outcome::done && s.info.err->num_warnings == 0;
}

}  // namespace ren::data
