// SPDX-License-Identifier: Apache-2.0
#include "data/support.h"

#include <unistd.h>
#include <zip.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <jpeglib.h>

#include "engine/base/file.h"
#include "engine/base/rng.h"

namespace ren::data::test {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "ren-data-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  root_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string TemporaryFolder::path(const std::string& below) const {
  return below.empty() ? root_.string() : (root_ / below).string();
}

std::string TemporaryFolder::write(const std::string& below, const std::string& content) const {
  const fs::path target = root_ / below;
  fs::create_directories(target.parent_path());
  fs::remove(target);  // some file systems flush what is truncated and written again: thousands of times here
  std::ofstream(target, std::ios::binary) << content;  // without write_file's flush to disk, for speed
  return target.string();
}

void TemporaryFolder::make_folder(const std::string& below) const { fs::create_directories(root_ / below); }

Image make_picture(int width, int height, int channels, uint32_t seed) {
  Image picture(width, height, channels);
  RandomStream random(seed, 1, 0);
  const uint32_t base = random.bits();
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        picture.row(y)[x * channels + c] =
            uint8_t((base >> (8 * c)) + uint32_t(x * (3 + c)) + uint32_t(y * (5 - c)) + random.below(24));
  return picture;
}

Image decode_fixture(const std::string& name, int channels) {
  Decoder decoder;
  DecodeOptions options;
  options.channels = channels;
  Image image;
  decoder.decode(fixture(name), options, image);
  return image;
}

std::string encode_jpeg(const Image& picture, const JpegForm& form) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = JDIMENSION(picture.width());
  info.image_height = JDIMENSION(picture.height());
  info.input_components = picture.channels();
  info.in_color_space = picture.channels() == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, form.quality, TRUE);
  info.comp_info[0].h_samp_factor = form.luma_h;
  info.comp_info[0].v_samp_factor = form.luma_v;
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(picture.row(int(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  free(memory);
  return bytes;
}

std::string jpeg_of(int width, int height, uint32_t seed) {
  return encode_jpeg(make_picture(width, height, 3, seed));
}

void write_zip(const std::string& path, const Files& files, bool compress) {
  int code = 0;
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, content] : files) {
    if (name.back() == '/') {
      ASSERT_GE(zip_dir_add(archive, name.c_str(), ZIP_FL_ENC_UTF_8), 0);
      continue;
    }
    zip_source_t* const source = zip_source_buffer(archive, content.data(), content.size(), 0);
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    ASSERT_GE(index, 0) << name;
    ASSERT_EQ(
        zip_set_file_compression(archive, zip_uint64_t(index), compress ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
        0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

std::string tar_header(const std::string& name, size_t size, char type) {
  std::string block(512, '\0');
  block.replace(0, std::min<size_t>(name.size(), 100), name.substr(0, 100));
  block.replace(100, 8, std::string("0000644\0", 8));
  block.replace(124, 11, fmt::format("{:011o}", size));
  block.replace(136, 11, "00000000000");
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += uint8_t(c);
  block.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block;
}

std::string tar_entry(const std::string& name, const std::string& content, char type) {
  std::string bytes = tar_header(name, content.size(), type) + content;
  bytes.resize((bytes.size() + 511) / 512 * 512);
  return bytes;
}

std::string tar_of(const Files& files) {
  std::string bytes;
  for (const auto& [name, content] : files) bytes += tar_entry(name, content, name.back() == '/' ? '5' : '0');
  return bytes + std::string(1024, '\0');
}

std::string big_endian(uint32_t value) {
  return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
}

uint8_t pixel_of(int picture, int at) { return uint8_t(picture * 37 + at * 5 + (at >> 5)); }

std::string idx_images(int count, int height, int width) {
  std::string bytes = big_endian(0x0803) + big_endian(uint32_t(count)) + big_endian(uint32_t(height)) +
                      big_endian(uint32_t(width));
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < height * width; ++k) bytes += char(pixel_of(i, k));
  return bytes;
}

std::string idx_labels(const std::string& labels) {
  return big_endian(0x0801) + big_endian(uint32_t(labels.size())) + labels;
}

// One record of CIFAR: labels, then planes.
std::string cifar_record(const std::string& labels, int picture) {
  std::string bytes = labels;
  for (int k = 0; k < 3072; ++k) bytes += char(pixel_of(picture, k));
  return bytes;
}

std::string cifar_ten(int first, int count) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) bytes += cifar_record(std::string(1, char(i % 10)), i);
  return bytes;
}

void write_files(const TemporaryFolder& folder, const Files& files) {
  for (const auto& [name, content] : files) {
    if (name.back() == '/')
      folder.make_folder(name);
    else
      folder.write(name, content);
  }
}

void read_all(const Split& split) {
  std::string content;
  for (const int64_t file : split.files) split.store->read(file, content);
}

void read_all(const Dataset& set) {
  for (const Split& split : set.splits) read_all(split);
}

std::string fixture(const std::string& name) {
  return read_file(std::string(REN_FIXTURES) + "/data/" + name);
}

}  // namespace ren::data::test
