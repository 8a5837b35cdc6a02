// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

namespace ren::importer {

// The names of metadata "renaissance.trainable"; throws invalid_model when it is no list of names.
std::set<std::string> trainable_names(const std::string& value);

// Whether metadata says that every BatchNormalization is meant as the file marks it, even where none is
// marked for training; throws invalid_model for another value.
constexpr const char* kBatchNormKey = "renaissance.batch_norm";
bool batch_norm_as_marked(const std::string& value);

// Throws invalid_argument for an entry that this program would refuse when it reads the file again.
void check_metadata(const std::string& key, const std::string& value);

}  // namespace ren::importer
