// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "data/source/file_store.h"

namespace ren::data {

std::shared_ptr<const FileStore> open_folder_store(const std::string& path);
std::shared_ptr<const FileStore> open_zip_store(const std::string& path);
std::shared_ptr<const FileStore> open_single_file_store(const std::string& path);

// True for names that listings leave out: hidden ones, __MACOSX, what desktops leave behind.
bool is_ignored_name(std::string_view name);

}  // namespace ren::data
