// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/decode/decode.h"
#include "engine/base/rng.h"
#include "engine/base/status.h"

namespace ren::data::test {

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string& below = "") const;
  // Writes a file, making the folders on the way.
  std::string write(const std::string& below, const std::string& content) const;
  void make_folder(const std::string& below) const;

 private:
  std::filesystem::path root_;
};

// A picture that depends on `seed` alone.
Image make_picture(int width, int height, int channels, uint32_t seed);
struct JpegForm {
  int quality = 90;
  int luma_h = 2, luma_v = 2;  // sampling of luma against chroma: 2, 2 is 4:2:0
  bool progressive = false;
};
std::string encode_jpeg(const Image& picture, const JpegForm& form = {});
std::string jpeg_of(int width, int height, uint32_t seed);

// name -> content; a name that ends with '/' is a folder.
using Files = std::vector<std::pair<std::string, std::string>>;
void write_zip(const std::string& path, const Files& files, bool compress = false);
// The bytes of a tar archive (ustar), with its end mark; a name that ends with '/' is a folder.
std::string tar_header(const std::string& name, size_t size, char type = '0');
std::string tar_entry(const std::string& name, const std::string& content, char type = '0');
std::string tar_of(const Files& files);

// MNIST's IDX and CIFAR-10's form, with pixels that depend on the picture's number.
uint8_t pixel_of(int picture, int at);
std::string big_endian(uint32_t value);
std::string idx_images(int count, int height = 5, int width = 4);
std::string idx_labels(const std::string& labels);
std::string cifar_record(const std::string& labels, int picture);  // labels, then planes
std::string cifar_ten(int first, int count);

void write_files(const TemporaryFolder& folder, const Files& files);

// Every file of a split, or of all splits.
void read_all(const Split& split);
void read_all(const Dataset& set);

std::string fixture(const std::string& name);
Image decode_fixture(const std::string& name, int channels);  // as pictures of 1 or 3 channels

// Runs a statement that must throw Error and returns it.
template <typename Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(StatusCode::ok, "");
}

}  // namespace ren::data::test
