// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/api.h"

namespace ren::cli {

// A file that is needed, and what to call it.
struct NeededFile {
  std::string path, what;
};

// The files that a command will write. Looked at before any work: each can be made, none replaces another one
// or a file that is needed, and there is room for all.
class PlannedOutputs {
 public:
  // copies: how many lie there at a time at most, an old one included.
  void add(const std::string& option, const std::string& path, uint64_t bytes,
           std::vector<NeededFile> not_over = {}, int copies = 1);
  // One that may replace a picture: an older one of its own.
  void add_picture(const std::string& option, const std::string& path);
  // No output may replace these.
  void keep(const std::vector<NeededFile>& files);
  void check() const;  // throws CliError with kRefused

 private:
  struct File {
    std::string option, path;
    uint64_t bytes = 0;
    std::vector<NeededFile> not_over;
    int copies = 1;
    bool is_picture = false;
  };
  void check_one(const File& file) const;
  void check_room() const;

  std::vector<File> files_;
  std::vector<NeededFile> kept_;
};

uint64_t file_bytes(const std::string& path);                             // 0 when unknown
std::vector<NeededFile> external_files(const ModelHandle& model);         // of its external data
uint64_t model_bytes(const std::string& path, const ModelHandle& model);  // with external data
// Of a checkpoint with so many values for each weight.
uint64_t checkpoint_bytes(const ModelHandle& model, int values_a_weight);

}  // namespace ren::cli
