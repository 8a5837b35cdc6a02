// SPDX-License-Identifier: Apache-2.0
// Rules about names that all sources share.
#include "data/source/stores.h"

namespace ren::data {
namespace {

// True when `holds` is for one of the path's parts.
template <typename Holds>
bool any_part(std::string_view path, Holds&& holds) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (holds(path.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

bool is_ignored_name(std::string_view name) {
  return name.empty() || name.front() == '.' || name == "__MACOSX" || name == "Thumbs.db" ||
         name == "desktop.ini";
}

bool is_ignored_path(std::string_view path) { return any_part(path, is_ignored_name); }

// Nothing is unpacked here, but an archive with such names is either damaged or made to harm.
bool leads_outside(std::string_view path) {
  return path.empty() || path.front() == '/' || any_part(path, [](auto part) { return part == ".."; });
}

const char* split_name_of(std::string_view name) {
  if (name == "train") return "train";
  if (name == "val" || name == "valid" || name == "validation") return "val";
  if (name == "test") return "test";
  return nullptr;
}

bool has_picture_name(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || path.find('/', dot) != std::string_view::npos) return false;
  const std::string ending = lower_case(path.substr(dot + 1));
  static constexpr std::string_view kEndings[] = {"jpg",  "jpeg", "jpe",  "jfif", "png",  "bmp", "gif",
                                                  "webp", "tif",  "tiff", "heic", "avif", "jp2"};
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

}  // namespace ren::data
