// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sources that say labels themselves. Each throws not_found, io or invalid_data with the path.

#include <string>
#include <string_view>
#include <vector>

#include "data/source/stores.h"

namespace ren::data {

// A file of lines "path,label[,split]".
bool looks_like_list(std::string_view path, std::string_view head);
Source open_list(const std::string& path, Purpose purpose);

// Tar archives that are one data set. Labelled, if there are labels in them.
Source open_tar(const std::string& uri, const std::vector<std::string>& shards, Purpose purpose);

// MNIST's IDX: one file of pictures with the labels beside it, or those that a folder has.
bool is_idx(std::string_view head);
bool is_idx_images_name(std::string_view name);
Source open_idx_file(const std::string& path, Purpose purpose);
Source open_idx_folder(const std::string& uri, const std::string& folder,
                       const std::vector<std::string>& names, Purpose purpose);

// CIFAR's binary version: one file, or those that a folder has.
bool is_cifar_name(std::string_view name);
bool is_cifar_size(int64_t bytes);
Source open_cifar_file(const std::string& path, int64_t bytes);
Source open_cifar_folder(const std::string& uri, const std::string& folder,
                         const std::vector<std::string>& names);

// A packed data set.
Source open_dts(const std::string& path, Purpose purpose);

// The names that a pattern with braces stands for, in its order; throws invalid_argument.
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace ren::data
