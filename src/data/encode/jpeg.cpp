// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>

#include "data/encode/encode.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto& manager = *reinterpret_cast<ErrorManager*>(info->err);
  info->err->format_message(info, manager.message);
  std::longjmp(manager.escape, 1);
}

void no_output(j_common_ptr) {}

// libjpeg leaves by longjmp: nothing here has a destructor. False: `errors` says why.
bool compress(const ImageView& picture, int quality, ErrorManager& errors, unsigned char** memory,
              unsigned long* bytes) {
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = on_error;
  errors.base.output_message = no_output;
  if (setjmp(errors.escape) != 0) {
    jpeg_destroy_compress(&info);
    return false;
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, memory, bytes);
  info.image_width = JDIMENSION(picture.width);
  info.image_height = JDIMENSION(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = picture.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.dct_method = JDCT_ISLOW;
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(picture.row(int(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

}  // namespace

std::string encode_jpeg_file(const ImageView& picture, int quality) {
  ErrorManager errors{};
  // As much as such a picture can ever take (TurboJPEG's bound): libjpeg's own growing buffer can't be freed
  // safely where it leaves by an error.
  std::string file((size_t(picture.width) + 15) * (size_t(picture.height) + 15) * 6 + 4096, '\0');
  auto* const own = reinterpret_cast<unsigned char*>(file.data());
  unsigned char* memory = own;
  unsigned long bytes = file.size();
  if (!compress(picture, quality, errors, &memory, &bytes))
    fail(StatusCode::unsupported, "the picture of {} x {} pixels can't be written as JPEG: {}", picture.width,
         picture.height, errors.message);
  require(memory == own, "a JPEG file is larger than its bound");
  file.resize(bytes);
  file.shrink_to_fit();
  return file;
}

}  // namespace ren::data
