// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/file_store.h"

namespace ren::data {

// A split as the source itself says it.
struct LabelledFiles {
  std::string split;  // "train", "val", "test" or "all"
  std::vector<int64_t> files;
  std::vector<int32_t> labels;  // one a file
};

// An opened URI. Where it isn't labelled, its folders are splits and classes.
struct Source {
  std::shared_ptr<const FileStore> store;
  bool labelled = false;
  std::vector<std::string> classes;  // by label
  std::vector<LabelledFiles> splits;
  std::string warning;  // about the labels, or empty
};

enum class Purpose {
  labels,   // a data set; what is wrong with labels is an error
  pictures  // only what can be decoded: labels aren't looked at, and one picture file is enough
};

// Finds out by content what a URI is: a folder of class folders, a zip archive, a tar archive or several
// (a pattern with braces, or a folder of them), a CSV list, a packed data set (.dts), MNIST's IDX
// or CIFAR's binary files.
// Throws not_found, io or invalid_data.
Source open_source(const std::string& uri, Purpose purpose);

std::shared_ptr<const FileStore> open_folder_store(const std::string& path);
std::shared_ptr<const FileStore> open_zip_store(const std::string& path);
std::shared_ptr<const FileStore> open_single_file_store(const std::string& path);

// True for names that listings leave out: hidden ones, __MACOSX, what desktops leave behind.
bool is_ignored_name(std::string_view name);
bool is_ignored_path(std::string_view path);  // one of its parts is

// True for paths that begin at the root, are empty, or hold "..".
bool leads_outside(std::string_view path);

// "train", "val" or "test" for the names that folders, lists and shards give them, else nullptr.
const char* split_name_of(std::string_view name);

bool has_picture_name(std::string_view path);  // by its ending

std::string lower_case(std::string_view text);

}  // namespace ren::data
