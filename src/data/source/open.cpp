// SPDX-License-Identifier: Apache-2.0
// Which source a URI is.
#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>

#include "data/decode/decode.h"
#include "data/source/dts_format.h"
#include "data/source/input_file.h"
#include "data/source/labelled.h"
#include "data/source/labels.h"
#include "data/source/pixel_store.h"
#include "data/source/stores.h"
#include "data/source/tar_reader.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

Source of(std::shared_ptr<const FileStore> store) {
  Source source;
  source.store = std::move(store);
  return source;
}

constexpr int kMostDepth = 3;  // of folders with one folder in them

// What the first look at a folder shows: which folders are there, and files that could be more than pictures.
struct Glance {
  std::vector<std::string> folders, files;  // names, sorted
  bool pictures = false;                    // are there, too
};

Glance glance_at(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) fail_open(path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(folder, closedir);
  Glance glance;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (is_ignored_name(name)) continue;
    struct stat info {};
    const bool unknown = entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
    const bool is_folder = unknown
                               ? fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode)
                               : entry->d_type == DT_DIR;
    if (is_folder)
      glance.folders.push_back(name);
    else if (name.ends_with(".tar") || is_idx_images_name(name) || is_cifar_name(name) ||
             name == "batches.meta")
      glance.files.push_back(name);
    else
      glance.pictures = glance.pictures || has_picture_name(name);
  }
  std::sort(glance.folders.begin(), glance.folders.end());
  std::sort(glance.files.begin(), glance.files.end());
  return glance;
}

std::vector<std::string> tars_in(const std::string& folder, const Glance& glance) {
  std::vector<std::string> tars;
  for (const std::string& name : glance.files)
    if (name.ends_with(".tar")) tars.push_back(folder + '/' + name);
  return tars;
}

// Pixels in binary files, where a folder has nothing but files.
bool open_binary(const std::string& uri, const std::string& folder, const Glance& glance, Purpose purpose,
                 Source& source) {
  const auto any = [&](bool (*is)(std::string_view)) {
    return std::any_of(glance.files.begin(), glance.files.end(), is);
  };
  if (!glance.folders.empty()) return false;
  if (any(is_idx_images_name)) {
    source = open_idx_folder(uri, folder, glance.files, purpose);
    return true;
  }
  if (any(is_cifar_name)) {
    source = open_cifar_folder(uri, folder, glance.files);
    return true;
  }
  if (any([](std::string_view name) { return name == "batches.meta"; }))
    fail(StatusCode::unsupported,
         "'{}' holds CIFAR's Python version: get the binary version (data_batch_1.bin ...)", folder);
  return false;
}

// Tar archives beside class folders are none of the data set's; those of train/, val/ and test/ are.
std::vector<std::string> shards_of_folder(const std::string& folder, const Glance& glance) {
  if (glance.folders.empty()) return tars_in(folder, glance);
  std::vector<std::string> shards;
  for (const std::string& name : glance.folders) {
    if (split_name_of(name) == nullptr || !glance.files.empty()) return {};
    const std::string inner = folder + '/' + name;
    const Glance below = glance_at(inner);
    const std::vector<std::string> tars = tars_in(inner, below);
    if (tars.empty() || !below.folders.empty()) return {};
    shards.insert(shards.end(), tars.begin(), tars.end());
  }
  return shards;
}

Source open_folder(const std::string& path, Purpose purpose) {
  std::string here = path;
  while (here.size() > 1 && here.back() == '/') here.pop_back();
  for (int depth = 0; depth < kMostDepth; ++depth) {
    const Glance glance = glance_at(here);
    if (glance.pictures) break;
    const std::vector<std::string> shards = shards_of_folder(here, glance);
    if (!shards.empty()) return open_tar(path, shards, purpose);
    Source source;
    if (open_binary(path, here, glance, purpose, source)) return source;
    if (glance.folders.size() != 1 || !glance.files.empty()) break;
    here += '/' + glance.folders[0];
  }
  return of(open_folder_store(path));
}

Source open_file(const std::string& path, Purpose purpose) {
  std::string head(4096, '\0');
  int64_t size = 0;
  {
    const InputFile file(path);
    size = file.size();
    head.resize(file.read(0, head.data(), head.size()));
  }
  if (dts::is_dts(head)) return open_dts(path, purpose);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return of(open_zip_store(path));
  if (purpose == Purpose::pictures && is_decodable(recognise_format(head)))
    return of(open_single_file_store(path));
  if (path.ends_with(".zip")) return of(open_zip_store(path));
  if (is_tar_header(head) || path.ends_with(".tar")) return open_tar(path, {path}, purpose);
  if (path.ends_with(".dts")) return open_dts(path, purpose);  // which says what is wrong with it
  if (is_gzip(head)) {
    if (is_idx(inflate_gzip(path, 4))) return open_idx_file(path, purpose);
    fail(StatusCode::unsupported, "'{}' is compressed with gzip: unpack it (gunzip)", path);
  }
  if (is_idx(head) || is_idx_images_name(path)) return open_idx_file(path, purpose);
  const bool is_cifar = is_cifar_name(path.substr(path.rfind('/') + 1));
  if (is_cifar || (path.ends_with(".bin") && is_cifar_size(size))) return open_cifar_file(path, size);
  if (looks_like_list(path, head)) return open_list(path, purpose);
  if (purpose == Purpose::pictures) return of(open_single_file_store(path));
  fail(StatusCode::invalid_data,
       "'{}' is neither a folder nor a zip or tar archive, a CSV list, a .dts, an IDX or a CIFAR "
       "file: name a folder of class folders, an archive of one, or a list with lines 'path,label'",
       path);
}

// All of them have to be there: a pattern that is too wide is a mistake.
std::vector<std::string> shards_of_pattern(const std::string& pattern) {
  std::vector<std::string> names = expand_braces(pattern);
  Problems problems;
  Tally missing;
  for (const std::string& name : names) {
    struct stat info {};
    if (stat(name.c_str(), &info) != 0) missing.add(fmt::format("'{}'", name));
  }
  missing.report(problems, "the pattern", "archive is missing", "archives are missing",
                 "correct the pattern or bring the archives back");
  problems.throw_if_any(StatusCode::not_found, fmt::format("the archives '{}' can't be used", pattern));
  return names;
}

}  // namespace

Source open_source(const std::string& uri, Purpose purpose) {
  struct stat info {};
  if (uri.empty()) fail(StatusCode::invalid_argument, "the path of the data set is empty");
  if (stat(uri.c_str(), &info) != 0) {
    if (uri.find('{') == std::string::npos || errno != ENOENT) fail_open(uri, errno);
    return open_tar(uri, shards_of_pattern(uri), purpose);
  }
  return S_ISDIR(info.st_mode) ? open_folder(uri, purpose) : open_file(uri, purpose);
}

std::shared_ptr<const FileStore> open_file_store(const std::string& uri, bool allow_single_file) {
  return open_source(uri, allow_single_file ? Purpose::pictures : Purpose::labels).store;
}

}  // namespace ren::data
