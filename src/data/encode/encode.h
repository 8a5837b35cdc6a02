// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/decode/image.h"

namespace ren::data {

// A baseline JPEG file of a gray or RGB picture: libjpeg's quality from 1 to 100, accurate DCT, chroma at
// half the size, Huffman tables of its own. Equal pictures give equal bytes with one version of
// libjpeg-turbo. Throws unsupported for sides above 65500 pixels, which JPEG files can't have.
std::string encode_jpeg_file(const ImageView& picture, int quality);

// A PNG file of a gray or RGB picture.
std::string encode_png_file(const ImageView& picture);

}  // namespace ren::data
